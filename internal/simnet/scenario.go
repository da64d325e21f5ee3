package simnet

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// Scenario is everything that a run depends on.
type Scenario struct {
	Seed uint64
	Core core.Config // Rank is filled in
	Ops  []Op
	// Leave says that the last operation is a Sync barrier, after which a rank
	// is gone at once.
	Leave bool
	// Depth is how many operations a rank has in flight at most.
	Depth int
	// Skew bounds the time between a completion and a rank's next post.
	Skew core.Time
	Net  Net
	// Crashes and Pauses happen to ranks; a rank may have several pauses.
	Crashes []Crash
	Pauses  []Pause
	// Calm says that nothing is lost, late or overtaken, so that the laws of
	// traffic must hold exactly.
	Calm bool
}

// Op is one operation of the script that every rank runs.
type Op struct {
	core.Op
	InPlace bool // an Allgather's own shard lies in its receive buffer
}

// Net describes the network. All links are alike.
type Net struct {
	Delay, Jitter               core.Time // of a datagram; jitter reorders
	Loss, Dup                   float64   // of a datagram, for each receiver by itself
	ControlDelay, ControlJitter core.Time // control messages stay in order
	Queue                       int       // datagrams that a receiver's queue holds, 0: any
	Work                        core.Time // to take a datagram off the queue
	Wire                        core.Time // to send a datagram
	Burst                       int       // datagrams that are taken from the core at a time
}

// Crash stops a rank; each other rank hears of it up to Detect later.
type Crash struct {
	Rank       int
	At, Detect core.Time
}

// Pause stops a rank's program for a while; its queue goes on filling.
type Pause struct {
	Rank    int
	At, For core.Time
}

// Limits of what a random scenario moves, so that a seed takes milliseconds.
const (
	maxChunks = 60_000  // deliveries in all
	maxBytes  = 8 << 20 // over all receive buffers
	maxShard  = 200 << 10
)

// Random returns the scenario of a seed.
func Random(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 0x6d63617374)) //nolint:gosec // repeatable on purpose
	s := Scenario{Seed: seed}
	p := 1 + r.IntN(6)
	if r.IntN(3) == 0 {
		p = 1 + r.IntN(33)
	}
	chunk := pick(r, 1, 2, 3, 7, 16, 64, 100, 256, 1000, 1024, 4096, 1+r.IntN(4096))
	eager := pick(r, 0, 1<<10, 16<<10, 64<<10, r.IntN(64<<10+1))
	s.Core = core.Config{
		Size: p, Chunk: chunk, Lossless: r.IntN(8) == 0,
		Window: pick(r, 0, 2+r.IntN(6), 2+r.IntN(63)), Chains: pick(r, 1, 1, 2, 1+r.IntN(p)),
		Subgroups: pick(r, 1, 1, 2, 1+r.IntN(8)), Eager: eager,
		Arena: eager + pick(r, 0, eager, r.IntN(4*eager+1)), EagerChunks: pick(r, p, 64, 256, 4096),
		Cutoff: pick(r, 200*time.Microsecond, time.Millisecond, 5*time.Millisecond), Reorder: pick(r, 0, 20*time.Microsecond, 200*time.Microsecond),
	}
	s.Depth = pick(r, 1, 2, 1+r.IntN(core.MaxInFlight), core.MaxInFlight)
	s.Ops = randomOps(r, &s.Core)
	if s.Leave = r.IntN(3) == 0; s.Leave {
		s.Ops = append(s.Ops, Op{Op: core.Op{Collective: wire.Barrier, Sync: true}})
	}
	s.Skew = pick(r, 0, 10*time.Microsecond, time.Millisecond, 10*time.Millisecond)
	randomNet(r, &s)
	return s
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func upTo(r *rand.Rand, most core.Time) core.Time {
	if most <= 0 {
		return 0
	}
	return core.Time(r.Int64N(int64(most) + 1))
}

// randomOps draws a script within the limits on chunks and bytes.
func randomOps(r *rand.Rand, c *core.Config) []Op {
	n := pick(r, 1+r.IntN(4), 1+r.IntN(40), 1+r.IntN(200))
	chunks, bytes := maxChunks/n, maxBytes/n
	small := r.IntN(4) // how many in four are small
	ops := make([]Op, 0, n)
	for range n {
		o := Op{Op: core.Op{Collective: pick(r, wire.Allgather, wire.Allgather, wire.Broadcast, wire.Barrier)}}
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

// randomNet draws the network and the mishaps.
func randomNet(r *rand.Rand, s *Scenario) {
	us := time.Microsecond
	s.Net = Net{
		Delay: pick(r, us, 10*us, 100*us), ControlDelay: pick(r, us, 20*us, 200*us),
		Work: pick(r, 0, us/10, us, 5*us), Wire: pick(r, 0, us/10, us, 5*us), Burst: pick(r, 1, 8, 64),
	}
	if s.Core.Lossless {
		s.Net.Queue = pick(r, 1, 4, 64)
	}
	// What is calm has little delay and jitter against the cutoff, and room for everything.
	if r.IntN(5) == 0 {
		s.Calm = true
		s.Skew, s.Core.Cutoff = 0, time.Second
		return
	}
	s.Net.ControlJitter = pick(r, 0, 10*us, 500*us)
	if !s.Core.Lossless {
		s.Net.Jitter = pick(r, 0, us, 50*us, 300*us, 2*time.Millisecond)
		s.Net.Loss = pick(r, 0, 0, 0.001, 0.01, 0.05, 0.3, 0.3*r.Float64(), pick(r, 0.1, 0.3, 1))
		s.Net.Dup = pick(r, 0, 0, 0.01, 0.3)
		s.Net.Queue = pick(r, 0, 0, max(1, s.Core.Window), 1+r.IntN(64))
	}
	for range pick(r, 0, 0, 1, 4) {
		s.Pauses = append(s.Pauses, Pause{r.IntN(s.Core.Size), upTo(r, 10*time.Millisecond), upTo(r, 20*time.Millisecond)})
	}
	if r.IntN(6) == 0 {
		s.Crashes = []Crash{{r.IntN(s.Core.Size), upTo(r, 5*time.Millisecond), upTo(r, 50*time.Millisecond)}}
	}
}

// String describes the scenario in a line.
func (s *Scenario) String() string {
	c := &s.Core
	return fmt.Sprintf("seed %d: P %d, chunk %d, %d ops, depth %d, lossless %t, window %d, M %d, G %d, eager %d, arena %d, eager chunks %d, "+
		"cutoff %v, reorder %v, skew %v, net %+v, crashes %v, pauses %v, calm %t, leave %t",
		s.Seed, c.Size, c.Chunk, len(s.Ops), s.Depth, c.Lossless, c.Window, c.Chains, c.Subgroups, c.Eager, c.Arena, c.EagerChunks,
		c.Cutoff, c.Reorder, s.Skew, s.Net, s.Crashes, s.Pauses, s.Calm, s.Leave)
}
