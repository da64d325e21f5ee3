package hierarchy

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// callBytes is the length of a call. A cache line, so that elements behind it stay aligned.
const callBytes = team.Line

// call is what a rank called, as it tells the others: type u8, reduction u8, zeros;
// at 8 the factor, IEEE 754; at 16 the length in bytes; zeros. Big-endian.
type call [callBytes]byte

func newCall(op collective.Op, bytes int) (c call) {
	c[0], c[1] = byte(op.Type), byte(op.Reduction)
	if op.Reduction == reduce.PremulSum {
		binary.BigEndian.PutUint64(c[8:], math.Float64bits(op.Factor))
	}
	binary.BigEndian.PutUint64(c[16:], uint64(bytes))
	return c
}

func (c *call) String() string {
	if !reduce.Op(c[1]).Takes(reduce.Type(c[0])) {
		return "an allgather"
	}
	factor := math.Float64frombits(binary.BigEndian.Uint64(c[8:]))
	return fmt.Sprintf("allreduce (%s, %d bytes)", reduce.Words(reduce.Type(c[0]), reduce.Op(c[1]), factor),
		binary.BigEndian.Uint64(c[16:]))
}

// compare looks at the calls of all ranks, each at the beginning of its record of equal length. If
// another rank's call differs, the group fails, and this call with it.
func (o *Operations) compare(mine call, records []byte) error {
	n := len(records) / o.plan.Size
	for r := range o.plan.Size {
		if theirs := call(records[r*n:]); theirs != mine {
			f := mesh.Disagree(o.plan.Rank, &collective.Disagreement{
				Ranks: [2]int{o.plan.Rank, r}, What: [2]string{mine.String(), theirs.String()},
			}, "")
			o.report(f)
			return f
		}
	}
	return nil
}

// announce gathers the calls of all ranks in an operation of their own. ended is called when they
// are compared, with an error or nil. o.posting is held.
func (o *Operations) announce(mine call, ended func(err error)) (*engine.Work, error) {
	all := make([]byte, o.plan.Size*callBytes)
	own := all[o.plan.Rank*callBytes:][:callBytes]
	copy(own, mine[:])
	joint := engine.NewJoint(1, func(err error) error {
		if err == nil {
			err = o.compare(mine, all)
		}
		ended(err)
		return err
	})
	w, err := o.composer.allgather(own, own, all, piece{segment: true, done: joint.Ended})
	if err != nil {
		return nil, err
	}
	joint.Posted([]*engine.Work{w.Work})
	return w.Work, nil
}
