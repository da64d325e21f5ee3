package collnet

import "time"

// Info describes a group.
type Info struct {
	Rank, Size int
	Fabric     Fabric
	Reason     string   // why this fabric was chosen
	Interface  string   // that multicast uses; empty with SharedMemory
	Rails      []string // further interfaces that carry subgroups of multicast
	Address    string   // where other ranks reach this one
	ChunkBytes int      // bytes of a chunk, the unit of sending and repair
	// WindowBytes is how far a root sends ahead of the slowest receiver; 0: as far as it likes.
	WindowBytes int
	SIMD        string // instruction set of the sums
	// Notes tell what the group does without, and why, and what has made it slow since it was
	// joined.
	Notes []string
	// Allgather is how Allgathers and Broadcasts travel now: by "multicast", by "unicast" from rank to
	// rank, or through "shared memory"; AllgatherReason says why.
	Allgather, AllgatherReason string
	// Switched says that the next Reduce-Scatter goes through a switch, as far as this rank knows;
	// Switch says which one, or why none.
	Switched bool
	Switch   string
	// Peers are the other ranks, by rank, and the paths from them to this one; Unheard are the pairs of
	// all ranks, from and to, between which multicast did not pass when the group was joined.
	Peers   []Peer
	Unheard [][2]int
	// Topology is where this host is in the network, as MCAST_TOPOLOGY or Slurm says; may be empty. Ring is
	// the order in which data go from rank to rank where multicast does not carry them: all ranks, or with nodes
	// the ranks that exchange data over the network with this one.
	Topology string
	Ring     []int
	// Nodes is the number of hosts on which ranks work together, so that data cross a host's link only
	// once; 0: every rank stands alone. NodesReason says why.
	Nodes       int
	NodesReason string
}

// Peer is another rank and the path from it to this one, as they were found when the group was
// joined. With SharedMemory PacketBytes, Lost and RoundTrip are 0.
type Peer struct {
	Rank          int
	Host, Address string // name of its host, and where it is reached
	// PacketBytes is the size of the largest packet that this rank heard from the peer by multicast, with
	// IP's and UDP's headers; 0: none.
	PacketBytes int
	// Lost is the share of its multicast probes that did not arrive, 0 to 1: of 16 in groups of up to 8
	// ranks, of fewer in larger ones, so no more than a hint.
	Lost float64
	// RoundTrip is TCP's shortest; 0 for ranks that this one has no control connection with.
	RoundTrip time.Duration
}

// Info returns what the group is now: Notes, Allgather, Switched and their reasons may change, the rest
// does not.
func (g *Group) Info() Info {
	i := g.group.Info()
	peers := make([]Peer, len(i.Peers))
	for n, p := range i.Peers {
		peers[n] = Peer{p.Rank, p.Host, p.Address, p.Packet, p.Lost, p.RoundTrip}
	}
	return Info{
		Rank: i.Rank, Size: i.Size, Fabric: Fabric(i.Fabric), Reason: i.Reason, Interface: i.Interface, Rails: i.Rails,
		Address:    i.Address,
		ChunkBytes: i.ChunkBytes, WindowBytes: i.WindowBytes, SIMD: i.SIMD, Notes: i.Notes,
		Allgather: i.Allgather, AllgatherReason: i.AllgatherReason,
		Switched: i.ReduceScatter == "switch", Switch: i.ReduceScatterReason,
		Peers: peers, Unheard: i.Unheard, Topology: i.Topology, Ring: i.Ring, Nodes: i.Nodes, NodesReason: i.NodesReason,
	}
}
