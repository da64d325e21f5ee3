package group

import (
	"cmp"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// An Allreduce is a Reduce-Scatter followed by an Allgather of its result, on the two lanes. A
// large one is cut into segments: while one segment is gathered, the next is reduced. Ahead of the
// segments, ranks exchange which call they made, on the same lane as tiny Allreduces (see tiny.go).
// Otherwise a rank that calls a tiny one would wait on that lane, and a rank that calls a large one
// on the other lane, both for ever.
const (
	// segmentBytes is the least that a rank has of a segment, but for the last.
	segmentBytes = 1 << 20
	// maxSegments bounds the operations that one Allreduce posts to a lane. With nodes, a segment is several, so
	// that there are fewer segments where there are more of these.
	maxSegments     = 64
	stepsOfSegments = 8
	// scratchBytes is the largest operation that is copied to make its length a
	// multiple of the ranks. A larger one has its last few elements reduced apart.
	scratchBytes = 64 << 10
)

// Allreduce gives every rank the reduction of all ranks' send. send and recv have the same length
// and may be the same memory; otherwise they must not overlap. factor multiplies every input of a
// reduce.PremulSum. All ranks get the same bits, and the same inputs give the same bits. An
// Allreduce takes a place in both orders of operations: as a ReduceScatter in one, as an Allgather in the other.
func (g *Group) Allreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) error {
	return g.wait(g.startAllreduce(send, recv, t, op, factor))
}

// StartAllreduce begins an Allreduce.
func (g *Group) StartAllreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	return g.posted(g.startAllreduce(send, recv, t, op, factor))
}

func (g *Group) startAllreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	if err := checkReduction("allreduce", t, op); err != nil {
		return nil, err
	}
	switch {
	case len(send) != len(recv):
		return nil, argument("allreduce: send has %d bytes and recv %d; they must be equal", len(send), len(recv))
	case len(send)%t.Size() != 0:
		return nil, argument("allreduce: send has %d bytes, which is no multiple of %d, the size of %v", len(send), t.Size(), t)
	case overlaps(send, recv) && !engine.SameMemory(send, recv):
		return nil, argument("allreduce: recv overlaps send without being the same memory")
	}
	if Tiny(len(send), g.agreed.Size) {
		return g.startTiny(send, recv, t, op, factor)
	}
	a := newAllreduce(send, recv, t.Size(), g.agreed.Size, max(team.LeastSegments, maxSegments/max(1, g.agreed.GatherSteps()/stepsOfSegments)))
	g.posting.Lock()
	defer g.posting.Unlock()
	gather, reduce := g.composer.stepsOfAllreduce(a.segments, t.Size())
	if g.full(overlap.Gather, gather) || g.full(overlap.Reduce, reduce) {
		return nil, engine.ErrBusy // all of them are posted, or none
	}
	parts := 1 + 2*len(a.segments)
	joint := engine.NewJoint(parts, a.finish)
	joint.Book(g.books.of(allreduceKind, len(send)))
	w := &Work{Work: joint.Work, lane: g.last().lanes[overlap.Gather]}
	announced, err := g.announce(newCall(t, op, factor, len(send)), func(err error) {
		a.disagree = err
		joint.Ended()
	})
	if err != nil {
		return nil, err
	}
	defer g.composer.wakeAgents()
	sums, gathers, err := g.startSegments(a.segments, collective.Op{Type: t, Reduction: op, Factor: factor}, joint.Ended)
	a.refused = err // the group has failed: until what was posted has too, it may use the buffers
	posted := append([]*engine.Work{announced}, gathers...)
	for _, sum := range sums {
		posted = append(posted, sum.Work)
	}
	for range parts - len(posted) {
		joint.Ended()
	}
	joint.Posted(posted)
	w.before = sums
	return w, nil
}

// startSegments posts the two steps of each segment. The second step waits for the first, and is posted once
// handOnBehind more segments are begun. ended is called at the end of each step. If there is an error, the returned
// steps were posted all the same.
func (g *Group) startSegments(segments []segment, o collective.Op, ended func()) (sums []*Work, gathers []*engine.Work, err error) {
	own := func(s segment) []byte {
		n := len(s.send) / g.agreed.Size
		return s.recv[g.agreed.Rank*n:][:n]
	}
	var rests []func() *Work // of those begun
	for i := range len(segments) + handOnBehind {
		if i < len(segments) && err == nil {
			var rest func() *Work
			rest, err = g.composer.reduceScatter(segments[i].send, own(segments[i]), o, piece{segment: true, done: func() { g.summed(ended) }})
			if err == nil {
				rests = append(rests, rest)
			}
		}
		k := i - handOnBehind
		if k < 0 || k >= len(rests) {
			continue
		}
		sums = append(sums, rests[k]())
		if err == nil {
			var w *Work
			sum := own(segments[k])
			w, err = g.composer.allgather(sum, sum, segments[k].recv, piece{follows: sums[k].Work, segment: true, done: ended})
			if err == nil {
				gathers = append(gathers, w.Work)
			}
		}
	}
	return sums, gathers, err
}

// summed is called when a segment is reduced, and may be gathered.
func (g *Group) summed(ended func()) {
	g.meter.Begin(overlap.Gather)
	ended() // first: a lane may be waited on for the end of all
	for _, l := range g.levels {
		l.lanes[overlap.Gather].Nudge()
	}
}

// segment is a part of an Allreduce with a shard of equal length for each rank.
type segment struct{ send, recv []byte }

// allreduce is an Allreduce cut into segments.
type allreduce struct {
	segments []segment
	scratch  []byte // one segment, padded to a multiple of the ranks
	tail     []byte // the end of recv, which gets its result from scratch
	disagree error  // how the calls of the ranks differ
	refused  error  // why not all segments were posted
}

// newAllreduce cuts a buffer of elements of a size for ranks, into so many segments at most.
func newAllreduce(send, recv []byte, size, ranks, most int) *allreduce {
	a := new(allreduce)
	row := size * ranks // one element for each rank
	whole := len(send) / row * row
	if whole < len(send) && len(send) <= scratchBytes {
		whole = 0
	}
	most = max(1, most)
	step := max(segmentBytes, (whole/ranks+most-1)/most)
	step = (step + team.Line - 1) &^ (team.Line - 1) * ranks
	for at := 0; at < whole; at += step {
		end := min(at+step, whole)
		a.segments = append(a.segments, segment{send[at:end:end], recv[at:end:end]})
	}
	if rest := send[whole:]; len(rest) > 0 || whole == 0 {
		a.tail = recv[whole:]
		a.scratch = make([]byte, (len(rest)+row-1)/row*row)
		copy(a.scratch, rest)
		a.segments = append(a.segments, segment{a.scratch, a.scratch})
	}
	return a
}

// finish is called when all steps of all segments are done.
func (a *allreduce) finish(err error) error {
	err = cmp.Or(err, a.disagree, a.refused)
	if err == nil {
		copy(a.tail, a.scratch)
	}
	return err
}
