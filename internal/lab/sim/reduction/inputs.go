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
		Put(in.vector[i:i+in.size], t, int(rng.Uint64()>>56))
	}
	windows := make([][]byte, c.Ranks)
	for r := range windows {
		windows[r] = in.vector[r*in.size:][:sums]
	}
	in.sums = make([]byte, sums)
	reduce.Fold(in.sums, windows, t, reduce.Sum, 0)
	return in
}

// Put writes a small number as an element. It writes up to eight bits exactly, to floating-point types narrower
// than bfloat16 only -1 to 3.
func Put(b []byte, t reduce.Type, v int) {
	f := math.Float32bits(float32(v))
	switch t {
	case reduce.F32:
		binary.NativeEndian.PutUint32(b, f)
	case reduce.BF16:
		binary.NativeEndian.PutUint16(b, uint16(f>>16)) // the upper half
	case reduce.F16:
		binary.NativeEndian.PutUint16(b, map[int]uint16{-1: 0xbc00, 0: 0, 1: 0x3c00, 2: 0x4000, 3: 0x4200}[v])
	case reduce.E4M3:
		b[0] = map[int]byte{-1: 0xb8, 0: 0, 1: 0x38, 2: 0x40, 3: 0x44}[v]
	case reduce.E5M2:
		b[0] = map[int]byte{-1: 0xbc, 0: 0, 1: 0x3c, 2: 0x40, 3: 0x42}[v]
	case reduce.F64:
		binary.NativeEndian.PutUint64(b, math.Float64bits(float64(v)))
	default:
		var x [8]byte
		binary.LittleEndian.PutUint64(x[:], uint64(v))
		copy(b, x[:])
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
