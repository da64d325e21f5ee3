// Package network is a packet-level model of a network in virtual time.
package network

import (
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/simnet/agenda"
	"github.com/torch-mcast/torch-mcast/internal/simnet/fattree"
)

type kind uint8

const (
	arrive kind = iota
	deliver
	wake
)

type event struct {
	tag    uint64
	packet int32
	port   int32
	kind   kind
}

// Counter is what a port has sent.
type Counter struct {
	Packets, Bytes         [Classes]uint64
	Dropped, Lost, Corrupt uint64
	Peak                   int
}

// HostCounter is what a host has received.
type HostCounter struct {
	Received, Overflow uint64
	Busy               Time
}

// Network is a network in virtual time.
type Network struct {
	Config
	tree     *fattree.Tree
	rng      *rand.Rand
	now      Time
	agenda   agenda.Queue[event]
	nodes    []Node
	dead     []bool
	until    []Time
	work     []Time
	counters []Counter
	hosts    []HostCounter
	slabs    [][]Packet
	free     []int32
	events   uint64
	hash     uint64
}

// New builds a network.
func New(c Config, seed uint64) (*Network, error) {
	t, err := fattree.New(c.Tree)
	if err != nil {
		return nil, err
	}
	return &Network{
		Config: c, tree: t, rng: rand.New(rand.NewPCG(seed, 2)), //nolint:gosec // repeatable on purpose
		nodes: make([]Node, t.Nodes), dead: make([]bool, t.Nodes), until: make([]Time, len(t.Ports)),
		counters: make([]Counter, len(t.Ports)), hosts: make([]HostCounter, t.Hosts), work: make([]Time, t.Hosts),
	}, nil
}

// Tree returns the topology.
func (n *Network) Tree() *fattree.Tree { return n.tree }

// Attach puts a node into its place.
func (n *Network) Attach(node int, to Node) { n.nodes[node] = to }

// Now returns the moment.
func (n *Network) Now() Time { return n.now }

// At asks for a Wake of a node.
func (n *Network) At(at Time, node int, tag uint64) {
	n.agenda.Push(max(at, n.now), event{kind: wake, port: int32(node), tag: tag})
}

// Send sends a packet from its From.
func (n *Network) Send(p *Packet) {
	p.refs = 1
	n.forward(p, int(p.From), -1)
	n.done(p)
}

// Backlog returns how long the NIC is busy with what was sent.
func (n *Network) Backlog(node, rail int) Time {
	return max(0, n.until[n.tree.Up(node, rail)]-n.now)
}

// Crash stops a node.
func (n *Network) Crash(node int) { n.dead[node] = true }

// Restart starts a crashed node again.
func (n *Network) Restart(node int) { n.dead[node] = false }

// Events returns how many events there have been.
func (n *Network) Events() uint64 { return n.events }

// Hash returns a hash of all events so far.
func (n *Network) Hash() uint64 { return n.hash }

// Counters returns the counters of all ports.
func (n *Network) Counters() []Counter { return n.counters }

// Host returns a host's counters.
func (n *Network) Host(node int) HostCounter { return n.hosts[node] }

// Step lets the next event happen; false: there is none.
func (n *Network) Step() bool {
	at, e, ok := n.agenda.Pop()
	if !ok {
		return false
	}
	n.now = at
	n.events++
	n.hash = (n.hash ^ uint64(at) ^ uint64(e.port)<<40 ^ uint64(e.kind)<<60) * 0x100000001b3
	switch e.kind {
	case wake:
		if x := n.nodes[e.port]; x != nil && !n.dead[e.port] {
			x.Wake(e.tag)
		}
		return true
	case arrive:
		p := n.packet(e.packet)
		to := n.tree.Ports[e.port].To
		if to == int(p.To) {
			n.receive(p, to)
		} else {
			n.forward(p, to, n.tree.Ports[e.port].Reverse)
		}
		n.done(p)
	case deliver:
		p := n.packet(e.packet)
		n.receive(p, n.tree.Ports[e.port].To)
		n.done(p)
	}
	return true
}

func (n *Network) receive(p *Packet, node int) {
	if node < n.tree.Hosts {
		n.hosts[node].Received++
	}
	if x := n.nodes[node]; x != nil && !n.dead[node] {
		x.Receive(p)
	}
}

func (n *Network) forward(p *Packet, node, from int) {
	if p.To == Multicast {
		for _, q := range n.tree.Group(int(p.Group)%n.tree.Trees(), node) {
			if q != from {
				n.send(p, q)
			}
		}
		return
	}
	if q := n.tree.Next(node, int(p.To), uint64(uint32(p.Group))); q >= 0 {
		n.send(p, q)
	}
}

func (n *Network) send(p *Packet, q int) {
	wire := int(p.Bytes) + Header*int(max(1, p.Count))
	n.counters[q].Packets[p.Class] += uint64(max(1, p.Count))
	n.counters[q].Bytes[p.Class] += uint64(wire)
	n.until[q] = max(n.until[q], n.now) + Time(float64(wire)*8/n.Gbps)
	at, k := n.until[q]+n.Latency, arrive
	if h := n.tree.Ports[q].To; h < n.tree.Hosts {
		n.work[h] = max(at, n.work[h]) + n.Cost*Time(max(1, p.Count))
		at, k = n.work[h], deliver
	}
	p.refs++
	n.agenda.Push(at, event{kind: k, packet: p.id, port: int32(q)})
}
