// Package world is a network in virtual time for ranks that run as they ship: it implements
// group.Network, so everything above the sockets is the code of the product: rendezvous, lobby,
// mesh, probes, both lanes, the route of reductions. Time is that of a bubble of testing/synctest,
// which advances when all goroutines wait, so an hour of waiting costs nothing and a hang is seen
// at once.
//
// A World has hosts, one rank each. Between them go multicast datagrams, which are lost where a
// queue is full or a Fault says so, and streams, which repeat what is lost as TCP does. What is
// simulated is said in decision 0031; what is not: the kernel's sockets, and shared memory.
package world

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Config says how a network is when nothing is wrong with it.
type Config struct {
	Hosts int // one rank each
	Nodes int // hosts of aggregation nodes, which come after those of ranks
	Seed  uint64
	Delay time.Duration // of a packet from host to host
	Rate  float64       // bytes a second that a host's link carries, each way
	MTU   int           // bytes, of all interfaces
	Queue int           // chunks that a receiver of multicast holds while nobody reads it
}

// World is a network. Its methods may be called by all goroutines of a bubble.
type World struct {
	cfg   Config
	start time.Time

	mu      sync.Mutex
	rng     *rand.Rand
	hosts   []*Host
	faults  []Fault
	members map[netip.AddrPort][]receiver // by multicast group
	lost    int                           // packets that faults have taken
}

// New returns a network in which nothing is wrong but for the given faults, whose times count from
// now.
func New(c Config, faults ...Fault) *World {
	w := &World{
		cfg: c, start: time.Now(), rng: rand.New(rand.NewPCG(c.Seed, 0x776f726c64)), faults: faults,
		members: map[netip.AddrPort][]receiver{},
	}
	for i := range c.Hosts + c.Nodes {
		w.hosts = append(w.hosts, &Host{
			world: w, number: i, addr: hostAddr(i),
			listeners: map[uint16]*listener{}, sockets: map[uint16]*socket{}, ends: map[*end]struct{}{}, port: 32768,
		})
	}
	return w
}

// hostAddr is the address of a host.
func hostAddr(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number) + 1})
}

// Host returns a host by number.
func (w *World) Host(number int) *Host { return w.hosts[number] }

// Lost returns how many packets faults have taken.
func (w *World) Lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// at returns the host with an address, or nil.
func (w *World) at(addr netip.Addr) *Host {
	for _, h := range w.hosts {
		if h.addr == addr {
			return h
		}
	}
	return nil
}

// passes reports whether a packet of so many bytes gets from one host to another now. w.mu is held,
// here and below.
func (w *World) passes(from, to *Host, flow Flow, packet int) bool {
	if from.crashed || to.crashed {
		return false
	}
	now := time.Since(w.start)
	for i := range w.faults {
		f := &w.faults[i]
		if f.What != Drop || !f.active(now) || !f.between(from.number, to.number) || f.Flow&flow == 0 || packet < f.Least {
			continue
		}
		if f.Share == 0 || w.rng.Float64() < f.Share {
			w.lost++
			return false
		}
	}
	return true
}

// is reports whether something is wrong with a host itself.
func (w *World) is(what What, h *Host) bool {
	now := time.Since(w.start)
	for i := range w.faults {
		f := &w.faults[i]
		if f.What == what && f.From == h.number && f.active(now) {
			return true
		}
	}
	return false
}

// leave returns when a packet has left a host, behind all that it has sent before.
func (h *Host) leave(now time.Time, packet int) time.Time {
	if h.sent.Before(now) {
		h.sent = now
	}
	h.sent = h.sent.Add(h.world.last(packet))
	return h.sent
}

// arrive returns when a packet that has left another host is here.
func (h *Host) arrive(left time.Time, packet int) time.Time {
	at := left.Add(h.world.cfg.Delay)
	if at.Before(h.received) {
		at = h.received
	}
	h.received = at.Add(h.world.last(packet))
	return at
}

// last is how long a packet occupies a link.
func (w *World) last(packet int) time.Duration {
	if w.cfg.Rate == 0 {
		return 0
	}
	return time.Duration(float64(packet) / w.cfg.Rate * float64(time.Second))
}
