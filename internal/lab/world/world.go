// Package world is a network in virtual time for ranks that run as they ship: it implements hostnet.Network, so
// everything above the sockets is the code of the product: rendezvous, listener, mesh, probes, both lanes, the route of
// reductions. Its clock is the clock of a bubble of testing/synctest, which advances when all goroutines wait, so an
// hour of waiting costs nothing and a hang is seen at once.
//
// A World has hosts with ranks, one each or several. Between hosts go multicast datagrams, which are lost where a queue
// is full or a Fault says so, and streams, which repeat lost segments as TCP does; ranks of a host may share memory.
// Decision 0031 lists the parts that are simulated. The kernel's sockets, and memory that processes map, are not.
package world

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Config says how a network is when nothing is wrong with it.
type Config struct {
	Ranks int
	On    []int // the host of each rank, those before Ranks; nil: one each
	Users []int // of each rank; nil: one
	Nodes int   // aggregation nodes; their processes and hosts have the numbers from Ranks on
	Seed  uint64
	Delay time.Duration // of a packet from host to host
	Rate  float64       // bytes a second that a host's link carries, each way
	MTU   int           // bytes, of all interfaces
	Reads int           // chunks that one RDMA Read brings at most; 0: there are none
	// Stray: share of multicast datagrams that a host gets late, half of them once more; and reads are as late
	Stray float64
	Queue int // chunks that a receiver of multicast holds while nobody reads it
}

// World is a network. Its methods may be called by all goroutines of a bubble.
type World struct {
	cfg   Config
	start time.Time

	mu       sync.Mutex
	rng      *rand.Rand
	hosts    []*Host // of each process
	faults   []Fault
	members  map[netip.AddrPort][]receiver // by multicast group
	lost     int                           // packets that faults have taken
	keys     uint32                        // keys given to registered memory
	reads    int                           // reads of registered memory
	trespass error                         // a read of memory that its rank has taken back
}

// New returns a network in which nothing is wrong but for the given faults. Their times count from now.
func New(c Config, faults ...Fault) *World {
	w := &World{
		cfg: c, start: time.Now(), rng: rand.New(rand.NewPCG(c.Seed, 0x776f726c64)), faults: faults,
		members: map[netip.AddrPort][]receiver{},
	}
	machines := map[int]*machine{}
	for i := range c.Ranks + c.Nodes {
		at := c.place(i)
		if machines[at] == nil {
			machines[at] = newMachine(at)
		}
		w.hosts = append(w.hosts, &Host{machine: machines[at], world: w, number: i, ends: map[*end]struct{}{}})
	}
	return w
}

// place is the number of a process's host.
func (c *Config) place(process int) int {
	if process >= 0 && process < len(c.On) {
		return c.On[process]
	}
	return process
}

// hostAddr is the address of a host.
func hostAddr(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number) + 1})
}

// Host returns the host of a process.
func (w *World) Host(number int) *Host { return w.hosts[number] }

// Lost returns how many packets faults have taken.
func (w *World) Lost() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// at returns the host that an address is of, as seen from this one, or nil.
func (h *Host) at(addr netip.Addr) *Host {
	if addr.IsLoopback() {
		return h
	}
	for _, other := range h.world.hosts {
		if other.addr == addr {
			return other
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
	if from.machine == to.machine {
		return true
	}
	now := time.Since(w.start)
	for i := range w.faults {
		f := &w.faults[i]
		if f.What != Drop || !f.active(now) || !f.between(w.cfg.place, from.place, to.place) || f.Flow&flow == 0 ||
			packet < f.Least {
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
		of := f.From == h.number || what != Descriptors && w.cfg.place(f.From) == h.place
		if f.What == what && of && f.active(now) {
			return true
		}
	}
	return false
}

// carry returns when a packet arrives that one host sends another now.
func (h *Host) carry(to *Host, now time.Time, packet int) time.Time {
	if h.machine == to.machine {
		return now.Add(loopback)
	}
	return to.arrive(h.leave(now, packet), packet)
}

// loopback is how long a packet takes from one process of a host to another.
const loopback = 5 * time.Microsecond

// leave returns when a packet has left a host, behind all that it has sent before.
func (h *Host) leave(now time.Time, packet int) time.Time {
	if h.sent.Before(now) {
		h.sent = now
	}
	h.sent = h.sent.Add(h.world.last(packet))
	h.out += packet
	return h.sent
}

// arrive returns when a packet that has left another host is here.
func (h *Host) arrive(left time.Time, packet int) time.Time {
	at := left.Add(h.world.cfg.Delay)
	if at.Before(h.received) {
		at = h.received
	}
	h.received = at.Add(h.world.last(packet))
	h.in += packet
	return at
}

// last is how long a packet occupies a link.
func (w *World) last(packet int) time.Duration {
	if w.cfg.Rate == 0 {
		return 0
	}
	return time.Duration(float64(packet) / w.cfg.Rate * float64(time.Second))
}
