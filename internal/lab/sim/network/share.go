package network

// Share is one of several jobs' part of a network: what an endpoint of a job sends comes to that job's
// endpoints, of which each node has one at most. Links, the queues of switches and the receive paths
// of hosts are everybody's. A Share is the Network in all that it does not say itself.
type Share struct {
	*Network
	number int32
	first  int32
}

// Share gives a job its part of the network. Multicast trees are counted from first on, modulo Trees:
// so each job may use others.
func (n *Network) Share(first int) *Share {
	n.nodes = append(n.nodes, make([]Node, n.tree.Nodes))
	n.pair = append(n.pair, map[uint64]int32{})
	return &Share{Network: n, number: int32(len(n.nodes) - 1), first: int32(first)} // bounded by memory
}

// Alone reports whether no other job has a share.
func (s *Share) Alone() bool { return len(s.nodes) == 2 }

// Attach puts one of the job's endpoints into its place.
func (s *Share) Attach(node int, to Node) { s.nodes[s.number][node] = to }

// At asks for a Wake of the job's endpoint at a node.
func (s *Share) At(at Time, node int, tag uint64) { s.at(at, node, s.number, tag) }

// TreeOf returns which of the network's multicast trees a packet of the job takes that has this Group.
func (s *Share) TreeOf(group int) int { return (group + int(s.first)) % s.tree.Trees() }

// Send sends a packet to the job's endpoints.
func (s *Share) Send(p *Packet) {
	p.share = s.number
	p.Group += s.first
	s.Network.Send(p)
}
