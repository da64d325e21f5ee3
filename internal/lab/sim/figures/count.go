package figures

import (
	"math/bits"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// count tells how often bytes are counted on their way over a tree.
type count struct {
	*fattree.Tree
	// between is how often for a link between switches, 1 for those of hosts:
	// 1 counts links, 2 what all switch ports receive and send.
	between int
}

// path counts a unicast from host a to host b.
func (c count) path(a, b int) int {
	links := 0
	for node := a; node != b; links++ {
		node = c.Ports[c.Next(node, b, 0)].To
	}
	return 2 + (links-2)*c.between
}

// tree counts a multicast: each link of its tree once, wherever it starts.
func (c count) tree() int {
	switches := 0
	for node := c.Hosts; node < c.Nodes; node++ {
		if c.Member(0, node) {
			switches++
		}
	}
	return c.Hosts + (switches-1)*c.between
}

// shift counts a message of every rank to the one so many ranks on.
func (c count) shift(by int) int {
	n := 0
	for r := range c.Hosts {
		n += c.path(r, (r+by)%c.Hosts)
	}
	return n
}

// gather counts a shard during an Allgather, all shards together; ok is false for what has no
// closed form here.
func (c count) gather(algorithm string) (n int, ok bool) {
	p := c.Hosts
	switch algorithm {
	case Multicast:
		return p * c.tree(), true
	case "ring":
		return c.shift(1) * (p - 1), true
	case "linear":
		for by := 1; by < p; by++ {
			n += c.shift(by)
		}
		return n, true
	case "doubling":
		if p&(p-1) != 0 {
			return 0, false
		}
		for k := range bits.Len(uint(p)) - 1 {
			for r := range p {
				n += c.path(r, r^1<<k) << k
			}
		}
		return n, true
	}
	return 0, false
}

// control counts the bytes of all control messages of an operation of ours
// without losses, windows and chains: barrier, turns, handshake.
func (c count) control(turns bool) int {
	n := c.shift(c.Hosts - 1) // to the left neighbour: all is there
	for k := range bits.Len(uint(c.Hosts - 1)) {
		n += c.shift(1 << k)
	}
	if turns {
		n += c.shift(1) - c.path(c.Hosts-1, 0)
	}
	return n * (network.Header + wire.ControlSize)
}

// onWire is what a shard takes with headers: those of packets, and ours of a datagram.
func onWire(bytes, headers int) int { return bytes + (bytes+packetBytes-1)/packetBytes*headers }

// exact returns the bytes that are counted during an operation; ok is false for what has no closed
// form here.
func (c count) exact(collective, algorithm string, bytes int) (n int, ok bool) {
	if algorithm == Multicast {
		shards := 1
		if collective == "allgather" {
			shards = c.Hosts
		}
		return shards*c.tree()*onWire(bytes, network.Header+wire.DataSize) + c.control(collective == "allgather"), true
	}
	if collective == "broadcast" {
		return 0, false
	}
	n, ok = c.gather(algorithm)
	return n * onWire(bytes, network.Header), ok
}
