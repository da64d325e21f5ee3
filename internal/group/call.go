package group

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// callBytes is the length of a call. A cache line, so that elements behind it stay aligned.
const callBytes = 64

// call is what a rank called, as it tells the others: type u8, reduction u8, zeros;
// at 8 the factor, IEEE 754; at 16 the length in bytes; zeros. Big-endian.
type call [callBytes]byte

func newCall(t reduce.Type, op reduce.Op, factor float64, bytes int) (c call) {
	c[0], c[1] = byte(t), byte(op)
	if op == reduce.PremulSum {
		binary.BigEndian.PutUint64(c[8:], math.Float64bits(factor))
	}
	binary.BigEndian.PutUint64(c[16:], uint64(bytes))
	return c
}

func (c *call) String() string {
	if !reduce.Type(c[0]).Valid() || !reduce.Op(c[1]).Valid() {
		return "an allgather"
	}
	factor := math.Float64frombits(binary.BigEndian.Uint64(c[8:]))
	return fmt.Sprintf("allreduce (%s, %d bytes)", reduce.Words(reduce.Type(c[0]), reduce.Op(c[1]), factor), binary.BigEndian.Uint64(c[16:]))
}

// compare looks at the calls of all ranks, each at the beginning of its record of equal length. If
// another rank's call differs, the group fails, and this call with it.
func (g *Group) compare(mine call, records []byte) error {
	n := len(records) / g.agreed.Size
	for r := range g.agreed.Size {
		if theirs := call(records[r*n:]); theirs != mine {
			f := fabrics.Disagree(g.agreed.Rank, &collective.Disagreement{
				Ranks: [2]int{g.agreed.Rank, r}, What: [2]string{mine.String(), theirs.String()},
			}, "")
			g.mesh.Report(f)
			return f
		}
	}
	return nil
}

// announce gathers the calls of all ranks in an operation of their own. ended is called when they
// are compared, with an error or nil. g.posting is held.
func (g *Group) announce(mine call, ended func(err error)) (*engine.Work, error) {
	all := make([]byte, g.agreed.Size*callBytes)
	own := all[g.agreed.Rank*callBytes:][:callBytes]
	copy(own, mine[:])
	joint := engine.NewJoint(1, func(err error) error {
		if err == nil {
			err = g.compare(mine, all)
		}
		ended(err)
		return err
	})
	w, err := g.composer.allgather(own, own, all, piece{segment: true, done: joint.Ended})
	if err != nil {
		return nil, err
	}
	joint.Posted([]*engine.Work{w.Work})
	return w.Work, nil
}
