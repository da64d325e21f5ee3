// Package network is a packet-level model of a network in virtual time: hosts
// and switches of a fat tree (package fattree), links with rate, latency and
// queue, switches that route and replicate, the hosts' receive path, and what
// goes wrong. One seeded source of randomness decides everything, so that a
// run is repeated by its seed on any machine.
//
// A drop-tail port is no queue but a moment: the moment at which it will have sent all that it
// holds. A packet that arrives at t leaves at the later of t and that moment, so a link costs one
// event. The last link costs none: the moment at which a host's worker has taken the packet follows
// from the worker's own moment, and is the only event of a delivery. Ports side by side share one
// event if their copies of a multicast arrive at one moment.
//
// Inside the package moments of ports and workers are in picoseconds, for a
// packet takes 10.4 ns at 3.2 Tbit/s; events are in nanoseconds, rounded up.
package network

import (
	"math/bits"
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/agenda"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// kind says what happens at an event.
type kind uint8

const (
	nothing     kind = iota
	arrive           // the head of a packet reaches switches
	land             // the head of a packet reaches hosts
	again            // so does what takes no room on a link: a duplicate, or what a host sends to itself
	deliver          // hosts have taken a packet off their queue
	wake             // a node asked for it
	resend           // a lost reliable packet is sent again
	undelivered      // ... is given up
	sent             // a lossless port has sent a packet
	begin            // a core is through with a packet that its node sends
)

// event is something that happens to a packet behind n ports side by side, or
// to a node.
type event struct {
	// tag is a wake's; of a packet, how far its tail is behind its head, in ps;
	// of a lossless delivery 1 if it takes room at the end of its link.
	tag    uint64
	packet int32 // of a wake its share
	port   int32 // the first; of a wake its node
	n      int32 // of a wake its node's epoch
	kind   kind
}

// Network is a network in virtual time. It is not safe for concurrent use.
type Network struct {
	Config
	tree    *fattree.Tree
	rng     *rand.Rand
	now     Time
	agenda  agenda.Queue[event]
	nodes   [][]Node // of each share; those of the network itself are the first
	state   []state
	links   []link
	losses  []loss
	splits  []split
	counts  []Counter // by port
	hosts   []host
	workers []worker // of a host side by side
	slabs   [][]Packet
	free    []int32
	flows   []flow
	pair    []map[uint64]int32 // flow of a pair of nodes, of each share
	held    map[uint64]int32   // packet that waits for others of its flow
	rooms   *rooms             // of a lossless network
	cores   *cores             // nil: packets cost no core
	byLand  bool               // hosts' arrivals are not in the order of their port
	mishaps bool               // hosts' links have faults other than loss
	crashed bool               // a node has crashed once
	turn    int                // of adaptive choices among equals
	events  uint64
	hash    uint64
}

// state is whether a node lives. Packets and wakes of an earlier epoch are
// gone.
type state struct {
	dead  bool
	epoch int32
}

// New builds a network. Its run depends on the Config and the seed only. An error says which value
// was wrong and which ones are allowed.
func New(c Config, seed uint64) (*Network, error) {
	tree, err := fattree.New(c.Tree)
	if err != nil {
		return nil, err
	}
	if err := c.check(tree); err != nil {
		return nil, err
	}
	c.fill()
	n := &Network{
		Config: c, tree: tree, rng: rand.New(rand.NewPCG(seed, 2)), // repeatable on purpose
		nodes: [][]Node{make([]Node, tree.Nodes)}, state: make([]state, tree.Nodes),
		links: make([]link, len(tree.Ports)), counts: make([]Counter, len(tree.Ports)),
		hosts: make([]host, tree.Hosts), workers: make([]worker, tree.Hosts*c.Workers),
		pair: []map[uint64]int32{{}}, held: map[uint64]int32{},
		byLand:  c.Faults.Jitter > 0 || tree.Planes() > 1,
		mishaps: c.Faults.Jitter > 0 || c.Faults.Corrupt > 0 || c.Faults.MulticastLoss > 0 || c.Faults.Duplicate > 0,
	}
	n.layLinks()
	n.layPartitions()
	n.furnishHosts()
	n.furnishCores()
	if c.Lossless {
		n.rooms = newRooms(len(tree.Ports))
	}
	return n, nil
}

// Tree returns the topology.
func (n *Network) Tree() *fattree.Tree { return n.tree }

// Attach puts a node into its place, a host or a switch. A place without one
// takes packets and does nothing.
func (n *Network) Attach(node int, to Node) { n.nodes[0][node] = to }

// Now returns the moment.
func (n *Network) Now() Time { return n.now }

// At asks for a Wake of a node; a moment that has passed is now.
func (n *Network) At(at Time, node int, tag uint64) { n.at(at, node, 0, tag) }

func (n *Network) at(at Time, node int, share int32, tag uint64) {
	n.agenda.Push(max(at, n.now), event{kind: wake, port: int32(node), n: n.state[node].epoch, packet: share, tag: tag})
}

// Events returns how many events there have been. One event may be the
// delivery to many hosts.
func (n *Network) Events() uint64 { return n.events }

// Hash returns a hash of all events so far: the same for the same Config, seed
// and calls on any machine.
func (n *Network) Hash() uint64 { return n.hash }

// Step lets the next event happen; false: there is none.
func (n *Network) Step() bool {
	at, e, ok := n.agenda.Pop()
	if !ok {
		return false
	}
	n.now = at
	n.events++
	n.mix(uint64(at), uint64(e.kind)<<56^uint64(e.n)<<32^uint64(e.port))
	if e.kind == wake {
		n.wake(&e)
		return true
	}
	n.mix(uint64(e.packet), e.tag)
	p := n.packet(e.packet)
	switch e.kind {
	case arrive:
		for q := int(e.port); q < int(e.port+e.n); q++ {
			n.arrive(p, q, int64(e.tag))
		}
	case land:
		for q := int(e.port); q < int(e.port+e.n); q++ {
			n.land(p, q, int64(e.tag), n.takes())
		}
	case again:
		n.land(p, int(e.port), int64(e.tag), 0)
	case deliver:
		for q := int(e.port); q < int(e.port+e.n); q++ {
			n.deliver(p, q)
		}
		if e.tag != 0 {
			n.leave(int(e.port), p)
		}
	case begin:
		n.begin(p)
	case resend:
		n.resend(p)
	case undelivered:
		n.undelivered(p)
	case sent:
		n.sent(p, int(e.port))
	}
	n.done(p)
	return true
}

// mix takes two words into the hash.
func (n *Network) mix(a, b uint64) {
	n.hash = bits.RotateLeft64((n.hash^a)*0x9e3779b97f4a7c15, 29)
	n.hash = bits.RotateLeft64((n.hash^b)*0xd6e8feb86659fd93, 31)
}

// push schedules an event of a packet, which it holds.
func (n *Network) push(at int64, e event, p *Packet) {
	p.refs++
	e.packet = p.id
	n.agenda.Push(max(n.now, Time((at+999)/1000)), e)
}

// ps is a moment in picoseconds.
func ps(t Time) int64 { return int64(t) * 1000 }

// wake wakes a node, after its pause if it is in one.
func (n *Network) wake(e *event) {
	node := int(e.port)
	s := &n.state[node]
	to := n.nodes[e.packet][node]
	if s.dead || s.epoch != e.n || to == nil {
		return
	}
	if node < len(n.hosts) && n.hosts[node].pauses != nil {
		if end := n.hosts[node].pauses.after(ps(n.now), 0); end > ps(n.now) {
			n.agenda.Push(Time((end+999)/1000), *e)
			return
		}
	}
	to.Wake(e.tag)
}
