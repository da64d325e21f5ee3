package hierarchy

import (
	"cmp"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// An Allreduce is a Reduce-Scatter followed by an Allgather of its result, on the two lanes. A
// large one is cut into segments: while one segment is gathered, the next is reduced. Ahead of the
// segments, ranks exchange which call they made, on the same lane as tiny Allreduces (see tiny.go).
// Otherwise a rank that calls a tiny one would wait on that lane, and a rank that calls a large one
// on the other lane, both for ever.

// Allreduce gives every rank the reduction of all ranks' send, in recv of the same length, which may be the same
// memory.
func (o *Operations) Allreduce(send, recv []byte, op collective.Op) (*Work, error) {
	if team.Tiny(len(send), o.plan.Size) {
		return o.tinyAllreduce(send, recv, op)
	}
	a := newAllreduce(o.plan, send, recv, op.Type.Size())
	o.posting.Lock()
	defer o.posting.Unlock()
	gather, reduce := o.composer.stepsOfAllreduce(a.segments, op.Type.Size())
	if o.full(overlap.Gather, gather) || o.full(overlap.Reduce, reduce) {
		return nil, engine.ErrBusy // all of them are posted, or none
	}
	parts := 1 + 2*len(a.segments)
	joint := engine.NewJoint(parts, a.finish)
	joint.Book(o.books.of(allreduceKind, len(send)))
	w := &Work{Work: joint.Work, lane: o.last().Lanes[overlap.Gather]}
	announced, err := o.announce(newCall(op, len(send)), func(err error) {
		a.disagree = err
		joint.Ended()
	})
	if err != nil {
		return nil, err
	}
	defer o.composer.wakeAgents()
	sums, gathers, err := o.startSegments(a.segments, op, joint.Ended)
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
// forwardBehind more segments are begun. ended is called at the end of each step. If there is an error, the returned
// steps were posted all the same.
func (o *Operations) startSegments(
	segments []segment, op collective.Op, ended func(),
) (sums []*Work, gathers []*engine.Work, err error) {
	own := func(s segment) []byte {
		n := len(s.send) / o.plan.Size
		return s.recv[o.plan.Rank*n:][:n]
	}
	var rests []func() *Work // of those begun
	for i := range len(segments) + forwardBehind {
		if i < len(segments) && err == nil {
			var rest func() *Work
			rest, err = o.composer.reduceScatter(segments[i].send, own(segments[i]), op,
				piece{segment: true, done: func() { o.summed(ended) }})
			if err == nil {
				rests = append(rests, rest)
			}
		}
		k := i - forwardBehind
		if k < 0 || k >= len(rests) {
			continue
		}
		sums = append(sums, rests[k]())
		if err == nil {
			var w *Work
			sum := own(segments[k])
			w, err = o.composer.allgather(sum, sum, segments[k].recv, piece{follows: sums[k].Work, segment: true, done: ended})
			if err == nil {
				gathers = append(gathers, w.Work)
			}
		}
	}
	return sums, gathers, err
}

// summed is called when a segment is reduced, and may be gathered.
func (o *Operations) summed(ended func()) {
	o.meter.Begin(overlap.Gather)
	ended() // first: a lane may be waited on for the end of all
	for _, l := range o.levels {
		l.Lanes[overlap.Gather].Nudge()
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

// newAllreduce cuts a buffer of elements of a size.
func newAllreduce(p *team.Plan, send, recv []byte, size int) *allreduce {
	cut, rest := p.CutAllreduce(len(send), size)
	a := &allreduce{segments: make([]segment, 0, len(cut)+1)}
	for _, s := range cut {
		a.segments = append(a.segments, segment{send[s.From:s.To:s.To], recv[s.From:s.To:s.To]})
	}
	if rest.Len() > 0 || len(cut) == 0 {
		row := size * p.Size
		a.tail = recv[rest.From:]
		a.scratch = make([]byte, (rest.Len()+row-1)/row*row)
		copy(a.scratch, send[rest.From:])
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
