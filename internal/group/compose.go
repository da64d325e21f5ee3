package group

import (
	"cmp"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// With nodes, an operation is composed of operations of the node and of the column, which follow each
// other segment by segment: while one segment crosses the network, memory moves the one beside it.
// All ranks of a node, and all of a column, post theirs in the same order.

const (
	// segmentOfNode is what of a shard goes from one level to the other at a time, in bytes.
	segmentOfNode = 256 << 10
	// mostSteps bounds the operations that one composed operation posts to a lane, where there are
	// not more nodes.
	mostSteps = 128
)

// composed is an operation in the making.
type composed struct {
	*Group
	class  overlap.Class
	call   wire.Call // of which all steps are
	joint  *engine.Joint
	left   int // steps not posted yet
	works  []*engine.Work
	column []*Work  // those of works that cross the network
	rounds []*Work  // the last step of each call that posted some
	later  []func() // post steps that wait for others, see postpone
	err    error    // why not all of them were posted
}

// compose begins an operation of so many steps of the column, and of the node. finish, if not nil, is called when all of them are done,
// with what they have ended with, and returns what the whole does. then, if not nil, is called at the end, well or not, when others see what the operation has
// ended with: nobody else may ask to be called. call is what the caller has called, but for its number. g.posting is held for writing.
func (g *Group) compose(class overlap.Class, call wire.Call, across, within int, begun bool, finish func(error) error, then func()) (*composed, error) {
	steps := across + within
	switch {
	case g.leaving:
		return nil, g.closed()
	case g.full(class, across, within):
		return nil, engine.ErrBusy
	}
	call.Number = g.node.calls[class]
	g.node.calls[class]++
	c := &composed{Group: g, class: class, call: call, left: steps}
	c.joint = engine.NewJoint(steps, func(err error) error {
		g.ended(class)
		if err = cmp.Or(err, c.err); finish != nil {
			err = finish(err)
		}
		if err == nil {
			c.node.done.add(class, c.column)
		}
		return err
	})
	c.joint.Book(&g.waited[class])
	if then != nil {
		c.joint.OnDone(func(error) { then() })
	}
	if !begun {
		g.begun(class)
	}
	return c, nil
}

// onSuccess is what is done at the end of an operation that has ended well.
func onSuccess(do func()) func(error) error {
	return func(err error) error {
		if err == nil {
			do()
		}
		return err
	}
}

// full reports whether a class has no room for so many operations on the group's own lane, and on the
// node's. Where nothing is in flight there is room for a call of any size.
func (g *Group) full(class overlap.Class, across, within int) bool {
	full := func(gather, reduce interface{ InFlight() int }, steps int) bool {
		n := gather.InFlight()
		if class == overlap.Reduce {
			n = reduce.InFlight()
		}
		return n > 0 && n+steps > engine.MaxQueued
	}
	return full(g.gather, g.reduce, across) || g.node != nil && full(g.node.gather, g.node.reduce, within)
}

// posted takes steps that were posted to the lanes of the node or, if across, of the column.
func (c *composed) posted(works []*engine.Work, err error, across bool) {
	if err != nil {
		c.err = cmp.Or(c.err, err)
		return
	}
	c.left -= len(works)
	c.works = append(c.works, works...)
	lane := c.node.lanes[c.class]
	if across {
		lane = c.lanes[c.class]
		for _, w := range works {
			c.column = append(c.column, &Work{Work: w, lane: lane})
		}
	}
	c.rounds = append(c.rounds, &Work{Work: last(works), lane: lane})
}

// before returns a step, for another one to follow on the other level: its end has that lane go on. A
// step that was refused is nil. It may be called once for each step.
func (c *composed) before(w *engine.Work, across bool) *engine.Work {
	if w != nil {
		lane := c.node.lanes[c.class]
		if across {
			lane = c.lanes[c.class]
		}
		w.OnDone(func(error) { lane.Nudge() })
	}
	return w
}

// gathers posts steps to a gather lane. It returns nothing once some were refused.
func (c *composed) gathers(across bool, ops ...engine.GatherOp) []*engine.Work {
	if c.err != nil || len(ops) == 0 {
		return nil
	}
	lane := c.node.gather
	if across {
		lane = c.gather
	}
	for i := range ops {
		ops[i].Call = c.call
	}
	works, err := lane.SubmitAll(ops, c.joint.Ended)
	c.posted(works, err, across)
	return works
}

// reduces posts steps to a reduce lane. It returns nothing once some were refused.
func (c *composed) reduces(across bool, ops ...engine.ReduceOp) []*engine.Work {
	if c.err != nil || len(ops) == 0 {
		return nil
	}
	lane := c.node.reduce
	if across {
		lane = c.reduce
	}
	for i := range ops {
		ops[i].Call = c.call
	}
	works, err := lane.SubmitAll(ops, c.joint.Ended)
	c.posted(works, err, across)
	return works
}

// work is the whole, of so many segments. If the group has failed, what was posted may use the buffers
// until it ends, so that it is an operation all the same, unless nothing was posted. own is what this
// rank gives to it or gets of it, in bytes.
func (c *composed) work(own, segments int) (*Work, error) {
	for _, post := range c.later {
		post()
	}
	for range c.left {
		c.joint.Ended()
	}
	c.joint.Posted(c.works)
	c.node.posted[c.class].Add(1)
	c.checkDeparted(c.class)
	if c.class == overlap.Gather {
		c.counters.gatherBytes.Add(uint64(own))
	} else {
		c.counters.reduceBytes.Add(uint64(own))
	}
	w := &Work{Work: c.joint.Work}
	switch here := c.node.lanes[c.class]; {
	case len(c.rounds) == 0:
		w.lane = here // and it has ended
	case segments == 1:
		// Whoever waits drives one lane after the other, and no agent need be called for it.
		end := len(c.rounds) - 1
		w.before, w.lane = c.rounds[:end], c.rounds[end].lane
	default:
		here.Posted()
		w.before, w.lane = c.column, here
	}
	return w, nil
}

// postpone leaves steps of a segment to be posted behind those of so many later ones: a lane takes steps in
// order, and what waits for the other level would keep those from going on.
func (c *composed) postpone(segments int, post func()) {
	if c.later = append(c.later, post); len(c.later) > segments {
		c.later[0]()
		c.later = c.later[1:]
	}
}

// last returns the last of some steps, which ends after the others; nil if they were refused.
func last(steps []*engine.Work) *engine.Work {
	if len(steps) == 0 {
		return nil
	}
	return steps[len(steps)-1]
}

// stretch is a part of a shard: bytes from up to to.
type stretch struct{ from, to int }

func (s stretch) len() int { return s.to - s.from }

// line is what segments are multiples of, in bytes, but for the last: elements of all types fit.
const line = 64

// cut cuts a shard of so many bytes, in elements of a size, into segments; there is one at least, and not
// more if it is to stay whole. Ranks compare the lengths of segments, so that of the first one tells how
// many follow: else one that called less than the others would find nothing wrong.
func (g *Group) cut(bytes, size int, whole bool) []stretch {
	most := max(1, mostSteps/g.agreed.steps())
	step := (max(segmentOfNode, (bytes+most-1)/most) + line - 1) / line * line
	if whole || bytes <= step {
		return []stretch{{0, bytes}}
	}
	follow := (bytes - 1) / step
	first := step + follow*line
	if bytes < first {
		follow, first = 1, step+size
	}
	all := []stretch{{0, first}}
	for at := first; len(all) <= follow; at += step {
		all = append(all, stretch{min(at, bytes), min(at+step, bytes)})
	}
	return all
}
