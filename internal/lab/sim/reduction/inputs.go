package reduction

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// inputs are what all ranks bring, and what must come out. Element i of what rank r brings for
// owner o is number o+r+i of one vector. So no two ranks bring the same, and all sums together are
// one Fold of as many windows of the vector as there are ranks.
type inputs struct {
	size   int    // of an element
	bytes  int    // of a shard
	vector []byte // of small numbers: sums of them are exact in any order
	sums   []byte // the result for owner o begins at element o
}

func newInputs(c *Config) *inputs {
	t := c.typ()
	in := &inputs{size: t.Size(), bytes: c.Bytes}
	sums := c.Bytes + c.Ranks*in.size
	in.vector = make([]byte, sums+c.Ranks*in.size)
	rng := rand.NewPCG(c.Seed, 3)
	for i := 0; i < len(in.vector); i += in.size {
		put(in.vector[i:], t, uint8(rng.Uint64()>>56))
	}
	windows := make([][]byte, c.Ranks)
	for r := range windows {
		windows[r] = in.vector[r*in.size:][:sums]
	}
	in.sums = make([]byte, sums)
	reduce.Fold(in.sums, windows, t, reduce.Sum, 0)
	return in
}

// put writes a small number as an element. bfloat16 holds eight bits exactly, too.
func put(b []byte, t reduce.Type, v uint8) {
	switch t {
	case reduce.F32:
		binary.NativeEndian.PutUint32(b, math.Float32bits(float32(v)))
	case reduce.F64:
		binary.NativeEndian.PutUint64(b, math.Float64bits(float64(v)))
	case reduce.BF16:
		binary.NativeEndian.PutUint16(b, uint16(math.Float32bits(float32(v))>>16)) // the upper half
	case reduce.I32:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		panic(fmt.Sprintf("reduction: no numbers of type %v", t))
	}
}

// of returns what a rank brings for an owner.
func (in *inputs) of(rank, owner int) []byte {
	return in.vector[(rank+owner)*in.size:][:in.bytes:in.bytes]
}

// check returns an error if an owner's result is wrong.
func (in *inputs) check(owner int, result []byte) error {
	want := in.sums[owner*in.size:][:in.bytes]
	if bytes.Equal(result, want) {
		return nil
	}
	i := 0
	for result[i] == want[i] {
		i++
	}
	return fmt.Errorf("reduction: rank %d: byte %d of its result is %#x, not %#x", owner, i, result[i], want[i])
}
