package network

// Share is one of several jobs' part of a network: packets that an endpoint of a job sends come to
// that job's endpoints. Each node has at most one endpoint of a job. Links, the queues of switches
// and the receive paths of hosts are everybody's. For everything that a Share does not define it is
// the Network.
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

// TreeOf returns the multicast tree that a packet of the job takes, by its Group.
func (s *Share) TreeOf(group int) int { return (group + int(s.first)) % s.tree.Trees() }

// Send sends a packet to the job's endpoints.
func (s *Share) Send(p *Packet) {
	p.share = s.number
	p.Group += s.first
	s.Network.Send(p)
}
