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

// composed is an operation in the making.
type composed struct {
	*Group
	class  overlap.Class
	call   wire.Call // of which all steps are
	joint  *engine.Joint
	left   int // steps not posted yet
	works  []*engine.Work
	column []*Work // those of works that cross the network
	rounds []*Work // the last step of each call that posted some
	later  int     // of Group.node.later, how many post steps of this one
	err    error   // why not all of them were posted
}

// steps are how many of a column's, and of a node's, something is made of.
type steps struct{ across, within int }

func (s steps) times(n int) steps  { return steps{s.across * n, s.within * n} }
func (s steps) plus(o steps) steps { return steps{s.across + o.across, s.within + o.within} }

// outline says what is to be composed.
type outline struct {
	class overlap.Class
	call  wire.Call // that was made, but for its number
	steps steps
	// part: it is one of a call that takes several, for all of which there was room.
	part bool
	// begun: the end of what it follows has begun it.
	begun bool
	// finish, if not nil, is called when all steps are done, with what they have ended with, and returns what the
	// whole does.
	finish func(error) error
	// then, if not nil, is called at the end, well or not, when others see what the operation has ended with: nobody
	// else may ask to be called.
	then func()
}

// compose begins an operation. g.posting is held for writing until it is whole: see work.
func (g *Group) compose(o outline) (*composed, error) {
	switch {
	case g.leaving:
		return nil, g.closed()
	case !o.part && g.full(o.class, o.steps):
		return nil, engine.ErrBusy
	}
	call := o.call
	call.Number = g.node.calls[o.class]
	g.node.calls[o.class]++
	c := &composed{Group: g, class: o.class, call: call, left: o.steps.across + o.steps.within}
	c.joint = engine.NewJoint(c.left, func(err error) error {
		g.ended(o.class)
		if err = cmp.Or(err, c.err); o.finish != nil {
			err = o.finish(err)
		}
		if err == nil {
			c.node.done.add(o.class, c.column)
		}
		return err
	})
	c.joint.Book(g.books.of(o.call.Collective, int(o.call.Bytes)))
	if o.then != nil {
		c.joint.OnDone(func(error) { o.then() })
	}
	if !o.begun {
		g.begun(o.class)
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

// leastCalls is how many calls alike there is room for, of however many steps they are.
const leastCalls = 4

// full reports whether a class has no room for so many operations on the group's own lane, and on the
// node's. A call is admitted as a whole: one that was refused when others have posted their part of it could not be
// called again.
func (g *Group) full(class overlap.Class, s steps) bool {
	full := func(gather, reduce interface{ InFlight() int }, steps int) bool {
		n := gather.InFlight()
		if class == overlap.Reduce {
			n = reduce.InFlight()
		}
		return n+steps > max(engine.MaxQueued, leastCalls*steps)
	}
	return full(g.gather, g.reduce, s.across) || g.node != nil && full(g.node.gather, g.node.reduce, s.within)
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
	works, err := lane.SubmitSteps(ops, c.joint.Ended)
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
	works, err := lane.SubmitSteps(ops, c.joint.Ended)
	c.posted(works, err, across)
	return works
}

// work is the whole, of so many segments. If the group has failed, what was posted may use the buffers
// until it ends, so that it is an operation all the same, unless nothing was posted. own is what this
// rank gives to it or gets of it, in bytes.
func (c *composed) work(own, segments int) *Work {
	for c.later > 0 {
		c.node.postNext()
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
	c.later++
	c.node.later = append(c.node.later, postponed{c, post})
	for len(c.node.later) > segments {
		c.node.postNext()
	}
}

// postNext posts what was postponed first.
func (n *nodeLanes) postNext() {
	next := n.later[0]
	n.later = n.later[1:]
	next.of.later--
	next.post()
}

// last returns the last of some steps, which ends after the others; nil if they were refused.
func last(steps []*engine.Work) *engine.Work {
	if len(steps) == 0 {
		return nil
	}
	return steps[len(steps)-1]
}
