package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// A tiny Allreduce is one Allgather of all inputs, and every rank reduces them by itself: one step
// instead of two, where the time of a step matters more than the time of the bytes. In front of its
// input a rank says which call it made.

// tinyBytes is the size of all inputs together up to which that is faster.
const tinyBytes = 64 << 10

// Tiny says whether an Allreduce of so many bytes is one: no switch adds it.
func Tiny(bytes, ranks int) bool { return (bytes+callBytes)*ranks <= tinyBytes }

type tinyAllreduce struct {
	g         *Group
	call      call
	typ       reduce.Type
	op        reduce.Op
	factor    float64
	all, recv []byte
}

func (g *Group) startTiny(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	n := callBytes + (len(send)+callBytes-1)&^(callBytes-1)
	a := &tinyAllreduce{
		g: g, call: newCall(t, op, factor, len(send)), typ: t, op: op, factor: factor,
		all: make([]byte, g.agreed.Size*n), recv: recv,
	}
	own := a.all[g.agreed.Rank*n:][:n]
	copy(own, a.call[:])
	copy(own[callBytes:], send)
	joint := engine.NewJoint(1, a.finish)
	joint.Book(g.books.of(allreduceKind, len(send)))
	g.composer.lock()
	defer g.composer.unlock()
	w, err := g.composer.allgather(own, own, a.all, piece{done: joint.Ended})
	if err != nil {
		return nil, err
	}
	joint.Posted([]*engine.Work{w.Work})
	return &Work{Work: joint.Work, lane: w.lane, before: w.before}, nil
}

// finish reduces what all ranks have sent.
func (a *tinyAllreduce) finish(err error) error {
	if err == nil {
		err = a.g.compare(a.call, a.all)
	}
	if err != nil {
		return err
	}
	n := len(a.all) / a.g.agreed.Size
	inputs := make([][]byte, a.g.agreed.Size)
	for r := range inputs {
		inputs[r] = a.all[r*n+callBytes:][:len(a.recv)]
	}
	reduce.Fold(a.recv, inputs, a.typ, a.op, a.factor)
	return nil
}
