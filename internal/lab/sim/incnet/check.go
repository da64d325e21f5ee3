package incnet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/reduction"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// poison is what buffers hold once their operation is done, so that a late use shows.
const poison = 0xee

// newBuffer returns the buffers of a rank for an operation, filled.
func (s *sim) newBuffer(o, r int) *buffer {
	op := &s.Ops[o]
	b := &buffer{send: s.input(o, r)}
	if op.InPlace {
		b.recv = op.shard(b.send, r)
	} else {
		b.recv = bytes.Repeat([]byte{poison}, op.owned(r))
	}
	return b
}

// input returns a rank's contribution to an operation: any bits where only the order of ranks
// decides, otherwise numbers that have an exact sum in any order.
func (s *sim) input(o, r int) []byte {
	op := &s.Ops[o]
	rng := rand.NewPCG(s.Seed, uint64(o)<<16|uint64(r))
	size := op.Type.Size()
	b := make([]byte, op.Bytes())
	if op.To == 0 {
		b = make([]byte, s.Terms.Ranks*op.Bytes())
	}
	if s.Reproducible && len(s.Parents) == 1 || op.Reduction == reduce.Max || op.Reduction == reduce.Min {
		for i := 0; i < len(b); i += 8 {
			var x [8]byte
			binary.NativeEndian.PutUint64(x[:], rng.Uint64())
			copy(b[i:], x[:])
		}
		return b
	}
	for i := 0; i < len(b); i += size {
		v := int(rng.Uint64() >> 62)
		if op.Reduction == reduce.Prod {
			v = 1 - 2*(v&1)
		}
		reduction.Put(b[i:i+size], op.Type, v)
	}
	return b
}

// expect computes all results in the order of reduce.InOrder.
func (s *sim) expect() {
	for o := range s.Ops {
		op := &s.Ops[o]
		var all [][]byte
		for r := range s.Terms.Ranks {
			all = append(all, s.input(o, r))
		}
		results := make([][]byte, s.Terms.Ranks)
		for owner := range results {
			srcs := make([][]byte, len(all))
			for r := range all {
				srcs[r] = op.shard(all[r], owner)
			}
			results[owner] = make([]byte, op.owned(owner))
			reduce.Fold(results[owner], reduce.InOrder(srcs, owner, op.Type), op.Type, op.Reduction, op.Factor)
		}
		s.expected = append(s.expected, results)
	}
}
