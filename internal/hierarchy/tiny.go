package hierarchy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// A tiny Allreduce is one Allgather of all inputs, and every rank reduces them by itself: one step
// instead of two, where the time of a step matters more than the time of the bytes. In front of its
// input a rank says which call it made.

type tinyAllreduce struct {
	ops       *Operations
	op        collective.Op
	call      call
	all, recv []byte
}

func (o *Operations) tinyAllreduce(send, recv []byte, op collective.Op) (*Work, error) {
	n := callBytes + (len(send)+callBytes-1)&^(callBytes-1)
	a := &tinyAllreduce{ops: o, op: op, call: newCall(op, len(send)), all: make([]byte, o.plan.Size*n), recv: recv}
	own := a.all[o.plan.Rank*n:][:n]
	copy(own, a.call[:])
	copy(own[callBytes:], send)
	joint := engine.NewJoint(1, a.finish)
	joint.Book(o.books.of(allreduceKind, len(send)))
	o.composer.lock()
	defer o.composer.unlock()
	w, err := o.composer.allgather(own, own, a.all, piece{done: joint.Ended})
	if err != nil {
		return nil, err
	}
	joint.Posted([]*engine.Work{w.Work})
	return &Work{Work: joint.Work, lane: w.lane, before: w.before}, nil
}

// finish reduces what all ranks have sent.
func (a *tinyAllreduce) finish(err error) error {
	if err == nil {
		err = a.ops.compare(a.call, a.all)
	} else if namesAllgather(err) {
		err = fmt.Errorf("%w; a small allreduce is an allgather of inputs in multiples of %d bytes, with %[2]d more in front",
			err, callBytes)
	}
	if err != nil {
		return err
	}
	n := len(a.all) / a.ops.plan.Size
	inputs := make([][]byte, a.ops.plan.Size)
	for r := range inputs {
		inputs[r] = a.all[r*n+callBytes:][:len(a.recv)]
	}
	reduce.Fold(a.recv, inputs, a.op.Type, a.op.Reduction, a.op.Factor)
	return nil
}

// namesAllgather reports whether ranks disagree about an allgather.
func namesAllgather(err error) bool {
	var f *mesh.Fault
	return errors.As(err, &f) && f.Kind == mesh.Mismatch && strings.Contains(f.Text, "allgather of")
}
