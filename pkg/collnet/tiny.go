package collnet

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// A tiny Allreduce is one Allgather of all inputs, which every rank reduces by
// itself: one step instead of two, where the time of a step counts and that of bytes
// does not. In front of its input a rank says what it called.

const (
	// tinyBytes is the size of all inputs together up to which that is faster.
	tinyBytes = 64 << 10
	// tinyHead is what precedes an input: type u8, reduction u8, zeros; at 8 the
	// factor, IEEE 754; at 16 the length in bytes; zeros. Big-endian. A cache
	// line, so that elements stay aligned.
	tinyHead = 64
)

func tiny(bytes, ranks int) bool { return (bytes+tinyHead)*ranks <= tinyBytes }

type tinyAllreduce struct {
	g         *Group
	typ       reduce.Type
	op        reduce.Op
	factor    float64
	all, recv []byte
}

func (g *Group) startTiny(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	n := tinyHead + (len(send)+tinyHead-1)&^(tinyHead-1)
	a := &tinyAllreduce{g: g, typ: t, op: op, factor: factor, all: make([]byte, g.plan.size*n), recv: recv}
	own := a.all[g.plan.rank*n:][:n]
	a.head(own)
	copy(own[tinyHead:], send)
	joint := engine.NewJoint(1, a.finish)
	w, err := g.submit(engine.GatherOp{
		Op:   core.Op{Collective: wire.Allgather, Bytes: n},
		Send: own, Recv: a.all,
	}, len(send), joint.Ended)
	if err != nil {
		return nil, err
	}
	joint.Posted([]*engine.Work{w.Work})
	return &Work{Work: joint.Work, lane: g.lanes[overlap.Gather]}, nil
}

func (a *tinyAllreduce) head(b []byte) {
	b[0], b[1] = byte(a.typ), byte(a.op)
	if a.op == reduce.PremulSum {
		binary.BigEndian.PutUint64(b[8:], math.Float64bits(a.factor))
	}
	binary.BigEndian.PutUint64(b[16:], uint64(len(a.recv)))
}

// finish reduces what all ranks have sent.
func (a *tinyAllreduce) finish(err error) error {
	if err != nil {
		return err
	}
	n := len(a.all) / a.g.plan.size
	var mine [tinyHead]byte
	a.head(mine[:])
	inputs := make([][]byte, a.g.plan.size)
	for r := range inputs {
		b := a.all[r*n:][:n]
		if [tinyHead]byte(b) != mine {
			f := &Fault{Kind: Mismatch, Rank: a.g.plan.rank, Text: fmt.Sprintf(
				"ranks disagree: rank %d called %s, rank %d %s", a.g.plan.rank, describeTiny(mine[:]), r, describeTiny(b))}
			a.g.mesh.Report(f)
			return f
		}
		inputs[r] = b[tinyHead:][:len(a.recv)]
	}
	reduce.Fold(a.recv, inputs, a.typ, a.op, a.factor)
	return nil
}

func describeTiny(b []byte) string {
	if !reduce.Type(b[0]).Valid() || !reduce.Op(b[1]).Valid() {
		return "an allgather"
	}
	return fmt.Sprintf("allreduce (%v of %v, %d bytes, factor %v)", reduce.Op(b[1]), reduce.Type(b[0]),
		binary.BigEndian.Uint64(b[16:]), math.Float64frombits(binary.BigEndian.Uint64(b[8:])))
}
