package world

import "time"

// Flow is a kind of traffic, or several.
type Flow uint8

// The kinds of traffic.
const (
	Multicast Flow = 1 << iota // chunks, and probes by multicast
	Unicast                    // probes by unicast
	Meeting                    // connections that are being made, and the rendezvous
	Mesh                       // who is alive
	Control                    // credits and repairs
	Stream                     // direct Reduce-Scatter
	Session                    // connections with aggregation nodes, and between them
	Slots                      // their datagrams

	Every  = Multicast | Unicast | Meeting | Mesh | Control | Stream // between ranks
	Data   = Multicast | Unicast | Control | Stream
	Switch = Session | Slots
)

// What says what a fault does.
type What uint8

// The faults.
const (
	Drop        What = iota + 1 // packets between hosts are lost
	Descriptors                 // a host's process can open none: EMFILE
	Refused                     // a host's multicast is refused by its firewall: EPERM
	Unreachable                 // the network says that a host's multicast arrives nowhere: ECONNREFUSED
	Narrow                      // the interface of a node's host takes no packets of Least bytes: EMSGSIZE
	Congested                   // a host has no memory for datagrams of a session: ENOBUFS
)

// Fault is something that does not work from At on for a time; 0: for good. Times count from the
// beginning of the world.
type Fault struct {
	What  What
	At    time.Duration
	For   time.Duration
	From  int     // a process: it, for Descriptors, or its host
	To    int     // a process, for Drop: its host; Anybody: all
	Both  bool    // Drop in the other direction as well
	Flow  Flow    // that Drop concerns
	Least int     // bytes of the packets that Drop concerns, at least
	Share float64 // of the packets that are lost; 0: all
}

// Anybody is every process.
const Anybody = -1

func (f *Fault) active(now time.Duration) bool {
	return now >= f.At && (f.For == 0 || now < f.At+f.For)
}

// between reports whether the fault is between two hosts; place returns the host of a process.
func (f *Fault) between(place func(process int) int, from, to int) bool {
	is := func(a, b int) bool {
		return (f.From == Anybody || place(f.From) == a) && (f.To == Anybody || place(f.To) == b)
	}
	return is(from, to) || f.Both && is(to, from)
}
