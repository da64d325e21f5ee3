package hierarchy

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// With nodes, an operation is composed of operations of the node and of the column, which follow each
// other segment by segment: while one segment crosses the network, memory moves the one beside it.
// All ranks of a node, and all of a column, post theirs in the same order.

// nested composes operations of a group with two levels. Operations.posting guards sums, calls and later.
type nested struct {
	*Operations
	node   *Level
	sums   partialSums
	calls  [2]uint32        // of each class that were begun
	later  []postponed      // steps, the first one first; none but while an operation is made
	posted [2]atomic.Uint64 // operations of each class
	ended  tally
}

// lock keeps all others from posting: the steps of an operation go to several lanes.
func (n *nested) lock()   { n.posting.Lock() }
func (n *nested) unlock() { n.posting.Unlock() }

func (n *nested) posts() mesh.Posted {
	return mesh.Posted{overlap.Gather: n.posted[overlap.Gather].Load(), overlap.Reduce: n.posted[overlap.Reduce].Load()}
}

func (n *nested) wakeAgents() {
	n.column.Lanes[overlap.Gather].Posted()
	n.node.Lanes[overlap.Gather].Posted()
	n.node.Lanes[overlap.Reduce].Posted()
	if !n.plan.Even() {
		n.column.Lanes[overlap.Reduce].Posted() // a segment does not end there
	}
}

func (n *nested) stepsOfAllreduce(segments []segment, size int) (gather, reduce steps) {
	a := n.plan
	gather = n.gatherings(1).times(1 + len(segments))
	for _, s := range segments {
		cut := a.ReduceSegment(true).Cut(len(s.send)/a.Size, size)
		reduce = reduce.plus(n.reductions(len(cut)))
	}
	return gather, reduce
}

// tally counts finished operations as their callers see them, not the steps of an operation.
type tally struct{ gather, switched, direct atomic.Uint64 }

// add counts one. A reduction went through the switch if all of its steps across the network did.
func (t *tally) add(class overlap.Class, across []*Work) {
	direct := func(w *Work) bool { return !w.Switched() }
	switch {
	case class == overlap.Gather:
		t.gather.Add(1)
	case len(across) > 0 && !slices.ContainsFunc(across, direct):
		t.switched.Add(1)
	default:
		t.direct.Add(1)
	}
}

// counts counts calls instead of steps, and apart from that what was given to, and taken from, ranks of this host.
func (n *nested) counts(Ended) Counts {
	_, gather := n.node.Gather.Stats()
	reduce := n.node.Reduce.Stats()
	return Counts{
		Ended: Ended{
			Gathered: n.ended.gather.Load(), Switched: n.ended.switched.Load(), Direct: n.ended.direct.Load(),
		},
		NodeSent:     gather.SentBytes + gather.ControlBytes + reduce.SentBytes,
		NodeReceived: gather.ReceivedBytes + reduce.ReceivedBytes,
	}
}

// composed is an operation in the making.
type composed struct {
	*nested
	entry  entry
	call   wire.Call // the call that all steps belong to
	joint  *engine.Joint
	left   int // steps not posted yet
	works  []*engine.Work
	across []*Work // those of works that cross the network
	rounds []*Work // the last step of each call that posted some
	behind int     // calls of postpone that were not posted yet
	err    error   // why not all of them were posted
}

// outline describes an operation to be composed.
type outline struct {
	class overlap.Class
	call  wire.Call // the caller's; compose adds its number
	own   int       // bytes that this rank contributes, or receives as its result
	steps steps
	piece piece
	// finish, if not nil, is called when all steps are done, with their error, and returns the error of the whole
	// operation. piece.done is called after that.
	finish func(error) error
}

// compose begins an operation. posting is held for writing until it is whole: see work.
func (n *nested) compose(o outline) (*composed, error) {
	if n.shut != nil {
		return nil, n.shut
	}
	if !o.piece.segment && n.full(o.class, o.steps) {
		return nil, engine.ErrBusy
	}
	call := o.call
	call.Number = n.calls[o.class]
	n.calls[o.class]++
	c := &composed{
		nested: n, call: call, left: o.steps.across + o.steps.within,
		entry: entry{
			class: o.class, kind: call.Collective, bytes: int(call.Bytes), own: o.own, begun: o.piece.follows != nil,
		},
	}
	c.joint = engine.NewJoint(c.left, func(err error) error {
		n.meter.End(o.class)
		if err = cmp.Or(err, c.err); o.finish != nil {
			err = o.finish(err)
		}
		if err == nil {
			n.ended.add(o.class, c.across)
		}
		return err
	})
	if done := o.piece.done; done != nil {
		c.joint.OnDone(func(error) { done() })
	}
	n.begin(&c.entry)
	return c, nil
}

// onSuccess returns a finish that calls do if the operation has ended well.
func onSuccess(do func()) func(error) error {
	return func(err error) error {
		if err == nil {
			do()
		}
		return err
	}
}

// gathers posts steps to the gather lane of a level. It returns nothing once some were refused.
func (c *composed) gathers(on *Level, ops ...engine.GatherOp) []*engine.Work {
	if c.err != nil || len(ops) == 0 {
		return nil
	}
	for i := range ops {
		ops[i].Call = c.call
	}
	works, err := on.Gather.SubmitSteps(ops, c.joint.Ended)
	c.submitted(on, works, err)
	return works
}

// reduces posts steps to the reduce lane of a level. It returns nothing once some were refused.
func (c *composed) reduces(on *Level, ops ...engine.ReduceOp) []*engine.Work {
	if c.err != nil || len(ops) == 0 {
		return nil
	}
	for i := range ops {
		ops[i].Call = c.call
	}
	works, err := on.Reduce.SubmitSteps(ops, c.joint.Ended)
	c.submitted(on, works, err)
	return works
}

// submitted takes steps that a level has taken, or its error.
func (c *composed) submitted(on *Level, works []*engine.Work, err error) {
	if err != nil {
		c.err = cmp.Or(c.err, err)
		return
	}
	c.left -= len(works)
	c.works = append(c.works, works...)
	lane := on.Lanes[c.entry.class]
	if on == c.column {
		for _, w := range works {
			c.across = append(c.across, &Work{Work: w, lane: lane})
		}
	}
	c.rounds = append(c.rounds, &Work{Work: last(works), lane: lane})
}

// before returns a step, for another one to follow on a level: its end has the lane there go on. A step that was
// refused is nil. It may be called once for each step.
func (c *composed) before(w *engine.Work, on *Level) *engine.Work {
	if w != nil {
		lane := on.Lanes[c.entry.class]
		w.OnDone(func(error) { lane.Nudge() })
	}
	return w
}

// work is the whole, of so many segments. If the group has failed, what was posted may use the buffers
// until it ends, so that it is an operation all the same, unless nothing was posted.
func (c *composed) work(segments int) *Work {
	for c.behind > 0 {
		c.postNext()
	}
	for range c.left {
		c.joint.Ended()
	}
	c.joint.Posted(c.works)
	c.nested.posted[c.entry.class].Add(1)
	c.book(&c.entry, c.joint.Work)
	w := &Work{Work: c.joint.Work}
	switch here := c.node.Lanes[c.entry.class]; {
	case len(c.rounds) == 0:
		w.lane = here // and it has ended
	case segments == 1:
		// A wait drives one lane after the other, and no agent need be called for it.
		end := len(c.rounds) - 1
		w.before, w.lane = c.rounds[:end], c.rounds[end].lane
	default:
		here.Posted()
		w.before, w.lane = c.across, here
	}
	return w
}

// postponed are steps that are to be posted behind those of later segments.
type postponed struct {
	of   *composed
	post func()
}

// postpone leaves steps of a segment to be posted behind those of so many later ones, of the same operation or of
// another one that is begun before this one is whole: a lane takes steps in order, and what waits for the other
// level would keep those from going on.
func (c *composed) postpone(segments int, post func()) {
	c.behind++
	c.later = append(c.later, postponed{c, post})
	for len(c.later) > segments {
		c.postNext()
	}
}

// postNext posts what was postponed first.
func (n *nested) postNext() {
	next := n.later[0]
	n.later = n.later[1:]
	next.of.behind--
	next.post()
}

// last returns the last of some steps, which ends after the others; nil if they were refused.
func last(steps []*engine.Work) *engine.Work {
	if len(steps) == 0 {
		return nil
	}
	return steps[len(steps)-1]
}

// allOf returns a piece of work that is done once all of the steps are, in any order; nil if there are no steps,
// because they were refused.
func allOf(steps []*engine.Work) *engine.Work {
	if len(steps) == 0 {
		return nil
	}
	joint := engine.NewJoint(len(steps), func(err error) error { return err })
	for _, w := range steps {
		w.OnDone(func(error) { joint.Ended() })
	}
	joint.Posted(steps)
	return joint.Work
}
