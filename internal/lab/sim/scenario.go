package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Scenario is everything that a run depends on.
type Scenario struct {
	Seed uint64
	Core multicast.Config // Rank is filled in
	Ops  []Op
	// Leave says that the last operation is a Sync barrier, after which a rank
	// is gone at once.
	Leave bool `json:",omitempty"`
	// Depth is how many operations a rank has in flight at most.
	Depth int
	// Skew bounds the time between a completion and a rank's next post.
	Skew multicast.Time `json:",omitempty"`
	Net  network.Config
	// Burst is how many datagrams are taken from the core at a time.
	Burst int
	// PacketBytes is what a packet of the network carries of a chunk, where a
	// chunk is a train of several packets; 0: a chunk is a packet.
	PacketBytes int `json:",omitempty"`
	// Slots is how many chunks of each root a lossless fabric holds for a rank.
	Slots   int     `json:",omitempty"`
	Crashes []Crash `json:",omitempty"`
	// Nap bounds how long a rank's process may be elsewhere before it looks at what has come.
	Nap multicast.Time `json:",omitempty"`
	// Connection is how many bytes of messages to a rank may be on their way before there is no room
	// for more; 0: any number, or some where a connection may break.
	Connection int `json:",omitempty"`
	// Relay says that ranks want everything relayed from the start on, and Relays when one begins or
	// ends to do so.
	Relay  bool     `json:",omitempty"`
	Relays []Relays `json:",omitempty"`
	// Forged is the probability that a stranger's datagram comes before a packet that a rank receives.
	Forged float64 `json:",omitempty"`
	// Calm says that nothing is lost, late or overtaken, so that the laws of
	// traffic must hold exactly.
	Calm bool `json:",omitempty"`
	// Digest keeps a checksum of what a rank has received instead of the bytes, for many ranks. It shows wrong places,
	// duplicates and missing chunks.
	Digest bool `json:",omitempty"`
	Trace  bool `json:",omitempty"` // keep Marks
	// Link, if not nil, returns what ranks know of a host's sending link, which others share.
	Link func(host int) fabric.Link `json:"-"`
	// MaxEvents is after how many events without progress a run hangs; 0: any number.
	MaxEvents uint64 `json:",omitempty"`
}

// Op is one operation of the script that every rank runs.
type Op struct {
	multicast.Op
	InPlace bool `json:",omitempty"` // an Allgather's own shard lies in its receive buffer
	Whole   int  `json:",omitempty"` // bytes of the result that a Broadcast is a part of
	// Scatter is what ranks draw from where each has the shards of an Allgather; 0: in order, without gaps.
	// Not with Digest.
	Scatter int `json:",omitempty"`
}

// Crash stops a rank; each other rank is told up to Detect later. With Restart it comes back, and all run the script
// again with a new communicator.
type Crash struct {
	Rank       int
	At, Detect multicast.Time
	Restart    bool `json:",omitempty"`
}

// Relays is a moment from which on a rank wants everything relayed, or not any more.
type Relays struct {
	Rank int
	At   multicast.Time
	On   bool
}

// Limits of what a random scenario moves, so that a seed takes milliseconds.
const (
	maxChunks = 60_000  // deliveries in all
	maxBytes  = 8 << 20 // over all receive buffers
	maxShard  = 200 << 10
)

// MaxEvents is Scenario.MaxEvents in a random scenario.
const MaxEvents = 6_000_000

// Random returns the scenario of a seed.
func Random(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 0x6d63617374))
	s := Scenario{Seed: seed, MaxEvents: MaxEvents}
	p := 1 + r.IntN(6)
	if r.IntN(3) == 0 {
		p = 1 + r.IntN(33)
	}
	chunk := pick(r, 1, 2, 3, 7, 16, 64, 100, 256, 1000, 1024, 4096, 1+r.IntN(4096))
	eager := pick(r, 0, 1<<10, 16<<10, 64<<10, r.IntN(64<<10+1))
	s.Core = multicast.Config{
		Size: p, Chunk: chunk, Lossless: r.IntN(8) == 0,
		Window: pick(r, 0, 2+r.IntN(6), 2+r.IntN(63)), Chains: pick(r, 1, 1, 2, 1+r.IntN(p)),
		Subgroups: pick(r, 1, 1, 2, 1+r.IntN(8)), Eager: eager,
		Arena: eager + pick(r, 0, eager, r.IntN(4*eager+1)), EagerChunks: pick(r, p, 64, 256, 4096),
		Cutoff:  pick(r, 200*time.Microsecond, time.Millisecond, 5*time.Millisecond),
		Reorder: pick(r, 0, 20*time.Microsecond, 200*time.Microsecond),
	}
	s.Depth = pick(r, 1, 2, 1+r.IntN(collective.MaxInFlight), collective.MaxInFlight)
	s.Ops = randomOps(r, &s.Core)
	if s.Leave = r.IntN(3) == 0; s.Leave {
		s.Ops = append(s.Ops, Op{Op: multicast.Op{Collective: wire.Barrier, Sync: true}})
	}
	s.Skew = pick(r, 0, 10*time.Microsecond, time.Millisecond, 10*time.Millisecond)
	s.Burst = pick(r, 1, 8, 64)
	randomNet(r, &s)
	if !s.Calm && !s.Core.Lossless {
		randomStrangers(r, &s)
		randomDead(r, &s)
	}
	if r.IntN(6) == 0 {
		wrap := pick(r, uint32(1<<31), 0) // what the numbers come round at, as signed ones and as unsigned
		s.Core.First = wrap - uint32(r.IntN(len(s.Ops)+1))
	}
	if !s.Calm {
		if c := pick(r, 0, LeastConnection, 1<<10, 16<<10); s.SparesMessages() {
			s.Connection = c
		}
		s.Nap = pick(r, 0, 0, 10*time.Microsecond, time.Millisecond)
	}
	randomRelays(rand.New(rand.NewPCG(seed, 0x72656c6179)), &s)
	randomRing(rand.New(rand.NewPCG(seed, 0x72696e67)), &s)
	randomScatter(rand.New(rand.NewPCG(seed, 0x73636174)), &s)
	return s
}

// randomRelays draws who relays, from numbers of its own: the rest of a seed's scenario does not depend on it.
func randomRelays(r *rand.Rand, s *Scenario) {
	if s.Core.Lossless || r.IntN(3) > 0 {
		return
	}
	s.Relay = r.IntN(2) == 0
	if s.Relay {
		s.Net.Faults.MulticastLoss = pick(r, s.Net.Faults.MulticastLoss, 1)
	}
	if s.Calm {
		return
	}
	s.Core.Deaf = r.IntN(4) == 0
	for range pick(r, 0, 1, 3) {
		f := network.Filtered{Host: r.IntN(s.Core.Size), At: upTo(r, 10*time.Millisecond), For: upTo(r, 500*time.Millisecond)}
		s.Net.Faults.Filtered = append(s.Net.Faults.Filtered, f)
	}
	for range pick(r, 0, 1, 8) {
		s.Relays = append(s.Relays, Relays{r.IntN(s.Core.Size), upTo(r, 10*time.Millisecond), r.IntN(2) == 0})
	}
}

// randomRing draws a ring that does not follow the numbers of ranks, from numbers of its own as well.
func randomRing(r *rand.Rand, s *Scenario) {
	if r.IntN(4) == 0 {
		s.Core.Ring = r.Perm(s.Core.Size)
	}
}

// LeastConnection is the least that a connection of a random scenario holds. Through a narrow one that
// loses, requests go slower than cutoffs pass; then most are for what has been sent again already, for
// longer than a run may go without progress.
const LeastConnection = 256

// SparesMessages reports whether no message is lost by chance, so that a connection may be narrow.
func (s *Scenario) SparesMessages() bool {
	f := &s.Net.Faults
	return f.Loss == 0 && f.LinkLoss == 0 && f.Corrupt == 0 && len(f.Lossy) == 0 && s.Net.Queue == 0
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func upTo(r *rand.Rand, most multicast.Time) multicast.Time {
	if most <= 0 {
		return 0
	}
	return multicast.Time(r.Int64N(int64(most) + 1))
}

// randomOps draws a script within the limits on chunks and bytes.
func randomOps(r *rand.Rand, c *multicast.Config) []Op {
	n := pick(r, 1+r.IntN(4), 1+r.IntN(40), 1+r.IntN(200))
	if r.IntN(40) == 0 {
		n = 300 + r.IntN(400) // numbers come round in the core's ring
	}
	chunks, bytes := maxChunks/n, maxBytes/n
	small := r.IntN(4) // how many in four are small
	ops := make([]Op, 0, n)
	for range n {
		o := Op{Op: multicast.Op{Collective: pick(r, wire.Allgather, wire.Allgather, wire.Broadcast, wire.Barrier)}}
		o.Sync = r.IntN(10) == 0
		o.InPlace = r.IntN(2) == 0
		copies := c.Size * c.Size
		switch o.Collective {
		case wire.Barrier:
		case wire.Broadcast:
			o.Root = r.IntN(c.Size)
			copies = c.Size
			fallthrough
		default:
			most := min(maxShard, bytes/copies, chunks/copies*c.Chunk)
			if r.IntN(4) < small {
				most = min(most, pick(r, 0, 1, 64, 1000, 3*c.Chunk))
			}
			o.Bytes = r.IntN(most + 1)
			if r.IntN(3) == 0 {
				o.Bytes -= o.Bytes % c.Chunk
			}
		}
		ops = append(ops, o)
	}
	return ops
}

// randomTree draws a star or a fat tree that holds the ranks.
func randomTree(r *rand.Rand, hosts int) fattree.Config {
	t := fattree.Config{Hosts: hosts, Rails: pick(r, 1, 1, 1, 2)}
	switch r.IntN(4) {
	case 0:
		t.Leaves, t.Spines = 1+r.IntN(min(hosts, 5)), 1+r.IntN(3)
	case 1:
		t.Radix = pick(r, 4, 6, 8)
		t.Oversubscription = pick(r, 1.0, 1, 2)
		if hosts > t.Radix*t.Radix/2 {
			t.Radix = 16
		}
	}
	return t
}

// randomNet draws the network and the mishaps.
func randomNet(r *rand.Rand, s *Scenario) {
	us, ms := time.Microsecond, time.Millisecond
	p := s.Core.Size
	s.Net = network.Config{
		Tree: randomTree(r, p), Gbps: pick(r, 1.0, 10, 100, 400), Latency: pick(r, us, 10*us, 100*us),
		Cost: pick(r, 0, us/10, us, 5*us), Workers: pick(r, 1, 1, 2, 4), MTU: 8192, RTO: ms,
	}
	if s.Core.Lossless {
		s.Slots = pick(r, 1, 4, 64)
	}
	// A calm scenario has little delay against the cutoff, and room for everything.
	if r.IntN(5) == 0 {
		s.Calm = true
		s.Skew, s.Core.Cutoff, s.Core.Reorder = 0, time.Second, 10*ms
		return
	}
	f := &s.Net.Faults
	if !s.Core.Lossless {
		s.Net.Lossless = r.IntN(6) == 0
		s.Net.Adaptive = r.IntN(3) == 0
		s.Net.Queue = pick(r, 0, 0, 16<<10, 64<<10, 1<<20)
		s.Net.Depth = pick(r, 0, 0, max(1, s.Core.Window), 1+r.IntN(64))
		f.Jitter = pick(r, 0, us, 50*us, 300*us, 2*ms)
		f.MulticastLoss = pick(r, 0, 0, 0.001, 0.01, 0.05, 0.3, 0.3*r.Float64(), pick(r, 0.1, 0.3, 1))
		f.Loss = pick(r, 0, 0, 0.001, 0.01, 0.1)
		f.Burst = pick(r, 0.0, 0, 3, 20)
		f.Duplicate = pick(r, 0, 0, 0.01, 0.3)
		f.Corrupt = pick(r, 0, 0, 0.001, 0.05)
	}
	f.LinkLoss = pick(r, 0, 0, 0, 0.001, 0.02)
	if r.IntN(6) == 0 {
		if t, err := fattree.New(s.Net.Tree); err == nil {
			host := r.IntN(p)
			f.Lossy = []network.LossyLink{{A: host, B: t.Leaf(host, 0), Loss: r.Float64() * 0.5}}
		}
	}
	for range pick(r, 0, 0, 1, 4) {
		f.Pauses = append(f.Pauses, network.Pause{Node: r.IntN(p), At: upTo(r, 10*ms), For: upTo(r, 20*ms)})
	}
	if r.IntN(6) == 0 {
		f.Slow = []network.Slow{{Node: r.IntN(p), Factor: 1 + float64(20*r.Float64())}}
		s.Net.Cost = max(s.Net.Cost, us/10)
	}
	if r.IntN(8) == 0 {
		f.SlowNIC = []network.Slow{{Node: r.IntN(p), Factor: 1 + float64(20*r.Float64())}}
	}
	if r.IntN(8) == 0 {
		f.Partitions = []network.Partition{{
			Hosts: r.Perm(p)[:1+r.IntN(p)], At: upTo(r, 5*ms), For: upTo(r, 50*ms), Split: r.IntN(2) == 0,
		}}
	}
	if r.IntN(6) == 0 {
		s.Crashes = []Crash{{Rank: r.IntN(p), At: upTo(r, 5*ms), Detect: upTo(r, 50*ms), Restart: p > 1 && r.IntN(2) == 0}}
	}
}

// String describes the scenario in a line.
func (s *Scenario) String() string {
	c := &s.Core
	return fmt.Sprintf("seed %d: P %d, chunk %d, %d ops, depth %d, lossless %t, window %d, M %d, G %d, eager %d, arena "+
		"%d, eager chunks %d, "+
		"cutoff %v, reorder %v, skew %v, burst %d, net %+v, crashes %+v, calm %t, leave %t, relay %t %+v, ring %v",
		s.Seed, c.Size, c.Chunk, len(s.Ops), s.Depth, c.Lossless, c.Window, c.Chains, c.Subgroups, c.Eager, c.Arena,
		c.EagerChunks,
		c.Cutoff, c.Reorder, s.Skew, s.Burst, s.Net, s.Crashes, s.Calm, s.Leave, s.Relay, s.Relays, c.Ring)
}
