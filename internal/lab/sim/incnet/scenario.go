// Package incnet runs internal/protocol/innetwork for P ranks and a tree of aggregation nodes
// over a simulated network in virtual time, as its parent package does for
// internal/protocol/multicast: a run depends on its seed alone, real bytes travel, and what a
// run must satisfy is checked as it goes (check.go).
//
// Ranks, nodes and paths are its own, although internal/lab/sim/reduction has some, too: links that a node reads in
// turns, payloads that land in a hint and streams cut anywhere find bugs that those of reduction hide.
package incnet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Scenario is everything that a run depends on.
type Scenario struct {
	Seed  uint64
	Terms innetwork.Terms // Job and First are drawn for each session
	// Parents[n] is the parent of node n, a lower number; -1 for node 0, the root.
	Parents []int
	// At[r] is the node that rank r is attached to.
	At           []int
	Reproducible bool
	Ops          []Op
	Depth        int            // operations that a rank has in flight at most
	Skew         innetwork.Time // most time between a completion and a rank's next post
	Net          Net
	// NodeCrashes are moments at which a node loses all it knows; every rank notices within Detect,
	// and they go on through the restarted node.
	NodeCrashes []Crash
	// RankCrash, if not nil, ends a rank; the others are told within Detect.
	RankCrash *Crash
}

// Op is one operation of the script that every rank runs.
type Op struct {
	collective.Op
	InPlace bool // the result lies in this rank's own shard of its input
}

// owned returns how many bytes of the result are a rank's.
func (o *Op) owned(rank int) int {
	if o.To.Includes(rank) {
		return o.Bytes()
	}
	return 0
}

// shard returns what of a rank's input goes to an owner.
func (o *Op) shard(input []byte, owner int) []byte {
	at := owner * o.Bytes()
	if _, one := o.To.Root(); one {
		at = 0
	}
	return input[at:][:o.owned(owner)]
}

// Net describes the network. All links are alike.
type Net struct {
	Delay, Jitter innetwork.Time // jitter reorders
	Loss, Dup     float64        // of a datagram
	Queue         int            // datagrams that a receiver's queue for one link holds, without the one being taken
	Work          innetwork.Time // to take a datagram off a queue
	Late          float64        // of what was read coming once more, up to lateness later
	Forge         float64        // of a copy with a spoiled field
	Full          float64        // of a node's socket having no room for a datagram
	// Drop, if not nil, says which datagrams are lost besides. slots is how many slots the datagram is about: a Kept may
	// be about several.
	Drop func(h *wire.Slot, slots int) bool `json:"-"`
}

// Crash happens to a rank or node.
type Crash struct {
	Who        int
	At, Detect innetwork.Time
}

// Limits of what a run moves and takes, so that a seed takes milliseconds.
const (
	maxContributions = 2000
	maxBytes         = 1 << 20
	maxMemory        = 1 << 20 // of all slots of a node
)

// Random returns the scenario of a seed.
func Random(seed uint64) Scenario {
	r := rand.New(rand.NewPCG(seed, 0x696e63))
	s := Scenario{Seed: seed, Parents: []int{-1}}
	p := 1 + r.IntN(6)
	if r.IntN(4) == 0 {
		p = 1 + r.IntN(24)
	}
	if r.IntN(60) == 0 { // more than a word of a bitmap has bits
		p = 65 + r.IntN(80)
	}
	for r.IntN(3) == 0 && len(s.Parents) < 5 {
		s.Parents = append(s.Parents, r.IntN(len(s.Parents)))
	}
	for range p {
		s.At = append(s.At, r.IntN(len(s.Parents)))
	}
	s.Prune()
	s.Terms = innetwork.Terms{
		Ranks: p, Stripes: pick(r, 1, 1, 2, 1+r.IntN(5)),
		Chunk: 8 * pick(r, 1, 2, 3, 8, 32, 128, 1+r.IntN(128), 1000, 3000, 6000, 8192),
		Slots: 1 << r.IntN(7), Queue: pick(r, 0, 1, 4, 1+r.IntN(64)), Wide: len(s.Parents) > 1,
		Cutoff:  pick(r, 200*time.Microsecond, time.Millisecond, 2*time.Millisecond),
		Reorder: pick(r, 0, 20*time.Microsecond, 200*time.Microsecond),
	}
	s.randomTracks(seed)
	for s.Terms.Slots > 1 && s.Terms.Slots*s.Terms.Stripes*p*s.Terms.Chunk > maxMemory {
		s.Terms.Slots /= 2
	}
	s.Reproducible = r.IntN(2) == 0
	s.Depth = pick(r, 1, 2, collective.MaxInFlight, 1+r.IntN(collective.MaxInFlight))
	s.randomOps(r)
	s.Skew = pick(r, 0, 10*time.Microsecond, time.Millisecond, 10*time.Millisecond)
	us := time.Microsecond
	s.Net = Net{
		Delay: pick(r, us, 10*us, 100*us), Jitter: pick(r, 0, 0, us, 50*us, 2*time.Millisecond),
		Loss: pick(r, 0, 0, 0.001, 0.01, 0.1, 0.3, 0.3*r.Float64()), Dup: pick(r, 0, 0, 0.01, 0.3),
		Queue: pick(r, 1, 8, 64, 1000, 1000), Work: pick(r, 0, us/10, us, 5*us),
		Late: pick(r, 0, 0, 0, 0.1), Forge: pick(r, 0, 0, 0, 0.1), Full: pick(r, 0, 0, 0, 0.1, 0.5),
	}
	for range pick(r, 0, 0, 0, 1, 2) {
		s.NodeCrashes = append(s.NodeCrashes,
			Crash{r.IntN(len(s.Parents)), upTo(r, 5*time.Millisecond), upTo(r, 5*time.Millisecond)})
	}
	if r.IntN(8) == 0 {
		s.RankCrash = &Crash{r.IntN(p), upTo(r, 5*time.Millisecond), upTo(r, 20*time.Millisecond)}
	}
	return s
}

// randomTracks gives half of the small scenarios tracks, each of as many stripes as were drawn.
func (s *Scenario) randomTracks(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0x747261636b)) // of its own: what the other draws for a seed stays
	if t := &s.Terms; t.Ranks <= innetwork.MostTracks && r.IntN(2) == 0 {
		t.Tracks = pick(r, t.Ranks, 1+r.IntN(innetwork.MostTracks))
		t.Stripes *= t.Tracks
	}
}

// Remove removes a node, which is not the root, and gives its children and ranks to its parent.
func (s *Scenario) Remove(n int) {
	up := s.Parents[n]
	move := func(x int) int { // the number of what was node x
		switch {
		case x == n:
			return up
		case x > n:
			return x - 1
		}
		return x
	}
	s.Parents = slices.Delete(s.Parents, n, n+1)
	for i, x := range s.Parents {
		s.Parents[i] = move(x)
	}
	for i, x := range s.At {
		s.At[i] = move(x)
	}
	for i := range s.NodeCrashes {
		c := &s.NodeCrashes[i]
		c.Who = move(c.Who)
	}
}

// Prune removes the nodes below which there is no rank.
func (s *Scenario) Prune() {
	for n := len(s.Parents) - 1; n > 0; n-- {
		if !slices.Contains(s.At, n) && !slices.Contains(s.Parents, n) {
			s.Remove(n)
		}
	}
}

// randomOps draws the script.
func (s *Scenario) randomOps(r *rand.Rand) {
	types := []reduce.Type{reduce.F32, reduce.F32, reduce.BF16, reduce.F16, reduce.E4M3, reduce.E5M2, reduce.F64,
		reduce.I32, reduce.U8, reduce.I64, reduce.I16}
	ops := []reduce.Op{reduce.Sum, reduce.Sum, reduce.Avg, reduce.Max, reduce.Min, reduce.Prod, reduce.PremulSum}
	n := pick(r, 1, 1+r.IntN(4), 1+r.IntN(40))
	if s.Terms.Ranks > 64 {
		n = 1
	}
	left := maxContributions
	for range n {
		o := Op{
			Op:      collective.Op{Type: pick(r, types...), Reduction: pick(r, ops...), Factor: pick(r, 0.0, 2, 3)},
			InPlace: r.IntN(2) == 0,
		}
		owners := s.Terms.Ranks
		if r.IntN(3) == 0 {
			o.To, owners = wire.ToRank(r.IntN(s.Terms.Ranks)), 1
		}
		size := max(o.Type.Size(), o.Type.Accumulator().Size()/2) // what an element takes of a chunk
		if s.Terms.Wide {
			size = o.Type.Accumulator().Size()
		}
		per := s.Terms.Chunk / size // elements a chunk
		most := left / (s.Terms.Ranks * owners) / n
		o.Count = r.IntN(min(max(1, most*per), maxBytes/s.Terms.Ranks/owners/n/size) + 1)
		o.Count = min(o.Count, pick(r, 0, 1, per, 3*per, 64<<10, 64<<10, 64<<10))
		s.Ops = append(s.Ops, o)
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func upTo(r *rand.Rand, most innetwork.Time) innetwork.Time {
	if most <= 0 {
		return 0
	}
	return innetwork.Time(r.Int64N(int64(most) + 1))
}

// String describes the scenario in a line.
func (s *Scenario) String() string {
	t := &s.Terms
	crash := "none"
	if s.RankCrash != nil {
		crash = fmt.Sprintf("%+v", *s.RankCrash)
	}
	return fmt.Sprintf("seed %d: P %d, tree %v, at %v, stripes %d, tracks %d, chunk %d, slots %d, queue %d, "+
		"reproducible %t, %d ops, depth %d, skew %v, "+
		"cutoff %v, reorder %v, net %+v, node crashes %v, rank crash %s",
		s.Seed, t.Ranks, s.Parents, s.At, t.Stripes, t.Tracks, t.Chunk, t.Slots, t.Queue, s.Reproducible, len(s.Ops), s.Depth,
		s.Skew,
		t.Cutoff, t.Reorder, s.Net, s.NodeCrashes, crash)
}
