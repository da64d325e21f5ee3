// Package baseline runs what the multicast collectives are compared with, in
// the same network model: ring, linear and recursive-doubling Allgather, tree
// and pipelined-chain Broadcast, ring Reduce-Scatter (alone, and together with
// the ring Allgather), over an ideal reliable transport, go-back-N or selective
// repeat, and Gleam's multicast.
//
// No bytes are moved, but every piece is accounted for: it is an error of the run if a host would send a piece that it
// does not hold, or if a piece arrives twice or never.
package baseline

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// Algorithm names a collective and how it is done.
type Algorithm string

// The algorithms. P is the number of hosts, N is Config.Bytes.
const (
	// AllgatherRing: P-1 steps, each host passes a shard to the next one.
	AllgatherRing Algorithm = "allgather-ring"
	// AllgatherLinear: each host sends its shard to every other, beginning with the next one.
	AllgatherLinear Algorithm = "allgather-linear"
	// AllgatherDoubling: recursive doubling where P is a power of two, Bruck's algorithm otherwise.
	AllgatherDoubling Algorithm = "allgather-doubling"
	// BroadcastKnomial: a k-nomial tree, Config.K; binomial with K = 2.
	BroadcastKnomial Algorithm = "broadcast-knomial"
	// BroadcastBinary: a balanced binary tree.
	BroadcastBinary Algorithm = "broadcast-binary"
	// BroadcastChain: a pipeline through all hosts. With two hosts it is a plain unicast.
	BroadcastChain Algorithm = "broadcast-chain"
	// ReduceScatterRing: P-1 steps, each host adds its part to a shard and passes it on.
	ReduceScatterRing Algorithm = "reduce-scatter-ring"
	// RingRing: ReduceScatterRing and AllgatherRing at once on the same NICs (Khalilov et al.,
	// SC24, appendix B).
	RingRing Algorithm = "ring+ring"
	// BroadcastGleam: one go-back-N sender, multicast data, feedback aggregated in switches, as
	// Gleam does.
	BroadcastGleam Algorithm = "broadcast-gleam"
)

// Algorithms lists all algorithms.
func Algorithms() []Algorithm {
	return []Algorithm{
		AllgatherRing, AllgatherLinear, AllgatherDoubling, BroadcastKnomial, BroadcastBinary,
		BroadcastChain, ReduceScatterRing, RingRing, BroadcastGleam,
	}
}

// Transport names what carries the messages between two hosts.
type Transport string

// The transports.
const (
	// Reliable is the network's reliable class: ordered, no windows, no feedback packets. The
	// ideal.
	Reliable Transport = "reliable"
	// GoBackN is RC as RoCE NICs do it: a receiver takes packets in order only.
	GoBackN Transport = "go-back-n"
	// SelectiveRepeat resends lost packets alone (SRNIC, NSDI 23).
	SelectiveRepeat Transport = "selective-repeat"
)

// Config is a run. A field with a default has the default where it is zero.
type Config struct {
	Net       network.Config
	Seed      uint64
	Algorithm Algorithm
	Bytes     int // Allgather, Reduce-Scatter: a shard; Broadcast: the message
	// Segment is how many bytes a host passes on as soon as it holds them. A negative number, or one of Bytes and more,
	// means a whole shard or message; 0 means a packet, or as many packets as travel as one (Train) or have one ACK
	// (AckEvery). We compared 1 to 16 packets and whole messages, with 16 and 128 hosts, 64 KiB and 1 MiB (Allgathers of
	// 128 hosts: 64 KiB), Reliable and GoBackN, at 200 Gbit/s. A packet is best or within 2% of the best everywhere: a
	// chain or binary tree waits at each host for one segment alone, and a ring, a linear Allgather and a k-nomial tree
	// lose nothing by short segments. AllgatherDoubling has whole shards always.
	Segment   int
	Packet    int       // payload bytes in a packet; 0: 4096
	K         int       // of the k-nomial tree; 0: 2
	Root      int       // of a Broadcast
	Transport Transport // "": Reliable. Gleam brings its own: go-back-N

	Train    int // packets that travel as one, with Reliable only; 0: 1
	Window   int // packets in flight on a connection; 0: the bandwidth-delay product of the longest path
	AckEvery int // packets in order to an ACK; one that ends a message has an ACK anyway. 0: 1
	Reorder  int // transmissions that may overtake one before selective repeat takes it for lost; 0: none may
	// RTO: without progress and with nothing in the sender's receive queues, doubling each time; 0: 4 round trips, at
	// least 100 us
	RTO     network.Time
	Retries int // timeouts in a row before the run fails; 0: 16
}

// Result is what a run did.
type Result struct {
	Time   network.Time   // when the last host was done
	Finish []network.Time // by host: when it held all it should
	// Streams: by collective that ran (RingRing: Reduce-Scatter, Allgather): when its last host was done
	Streams       []network.Time
	Payload       int64   // bytes that each host receives of the collectives (a Broadcast's root: none)
	Goodput       float64 // Payload over Time, Gbit/s
	Packets       int64   // data packets sent, with those sent again
	Retransmitted int64   // data packets sent again; with Reliable the network's counters tell
	Feedback      int64   // ACK and NACK packets sent by hosts and switches
	Timeouts      int64
	Ports         []network.Counter // by port of the tree
	Events        uint64
	Hash          uint64
}

// check fills in defaults and returns an error for a value that is not allowed.
func (c *Config) check() error {
	if c.Transport == "" {
		c.Transport = Reliable
	}
	if c.Algorithm == BroadcastGleam {
		c.Transport = GoBackN
	}
	setDefault(&c.Packet, 4096)
	setDefault(&c.K, 2)
	setDefault(&c.Train, 1)
	setDefault(&c.AckEvery, 1)
	setDefault(&c.Retries, 16)
	setDefault(&c.Segment, max(c.Train, c.AckEvery)*c.Packet)
	if c.Segment < 0 || c.Segment > c.Bytes {
		c.Segment = c.Bytes
	}
	switch hosts := c.Net.Tree.Hosts; {
	case !slices.Contains(Algorithms(), c.Algorithm):
		return fmt.Errorf("baseline: algorithm %q; allowed are %q", c.Algorithm, Algorithms())
	case !slices.Contains([]Transport{Reliable, GoBackN, SelectiveRepeat}, c.Transport):
		return fmt.Errorf("baseline: transport %q; allowed are %q", c.Transport,
			[]Transport{Reliable, GoBackN, SelectiveRepeat})
	case hosts < 2 || hosts > math.MaxUint16:
		return fmt.Errorf("baseline: %d hosts; allowed are 2 to %d", hosts, math.MaxUint16)
	case c.Bytes < 1:
		return fmt.Errorf("baseline: %d bytes; at least 1", c.Bytes)
	case c.Packet < 1 || c.Train < 1 || c.AckEvery < 1 || c.Retries < 1:
		return errors.New("baseline: Packet, Train, AckEvery and Retries may not be negative")
	case c.Window < 0 || c.Reorder < 0 || c.RTO < 0:
		return errors.New("baseline: Window, Reorder and RTO may not be negative")
	case c.K < 2:
		return fmt.Errorf("baseline: a %d-nomial tree; K is at least 2", c.K)
	case c.Root < 0 || c.Root >= hosts:
		return fmt.Errorf("baseline: root %d; allowed are 0 to %d", c.Root, hosts-1)
	case c.Train > 1 && c.Transport != Reliable:
		return fmt.Errorf("baseline: trains of %d packets with %s; only %s may have them", c.Train, c.Transport, Reliable)
	case int64(hosts)*int64((c.Bytes-1)/c.Segment+1) > math.MaxInt32:
		return fmt.Errorf("baseline: %d segments of %d bytes on each of %d hosts: more than %d pieces",
			(c.Bytes-1)/c.Segment+1, c.Segment, hosts, math.MaxInt32)
	}
	return nil
}

func setDefault(v *int, to int) {
	if *v == 0 {
		*v = to
	}
}

const minRTO = 100 * time.Microsecond
