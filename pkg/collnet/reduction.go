package collnet

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Reduction says how the elements of all ranks are combined.
type Reduction struct {
	Type Type // of the elements; there is no default
	Op   Op   // Sum by default
	// Factor multiplies every input of PremulSum, which needs one; other operators take none.
	Factor float64
}

func (t Type) valid() bool { return t >= Int8 && int(t) < len(types) }

// Size returns the bytes of one element; 0 for a value that is no type.
func (t Type) Size() int {
	if !t.valid() {
		return 0
	}
	return types[t].is.Size()
}

// String returns the type's name, such as float32.
func (t Type) String() string {
	if !t.valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return types[t].name
}

// Op is an operator. Integers wrap around; a NaN among the inputs gives a NaN.
type Op uint8

// The operators.
const (
	Sum Op = iota
	Prod
	Max
	Min
	Avg       // the sum divided by the number of ranks; of integers truncated towards zero
	PremulSum // the sum of all inputs times Reduction.Factor, which for integers is truncated
	Band      // bitwise AND, of integers alone
	Bor       // bitwise OR, of integers alone
	Bxor      // bitwise XOR, of integers alone
)

var ops = [...]struct {
	name string
	is   reduce.Op
}{
	Sum: {"sum", reduce.Sum}, Prod: {"prod", reduce.Prod}, Max: {"max", reduce.Max}, Min: {"min", reduce.Min},
	Avg: {"avg", reduce.Avg}, PremulSum: {"premulsum", reduce.PremulSum},
	Band: {"band", reduce.Band}, Bor: {"bor", reduce.Bor}, Bxor: {"bxor", reduce.Bxor},
}

// String returns the operator's name, such as sum.
func (o Op) String() string {
	if int(o) >= len(ops) {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return ops[o].name
}

// check returns how package reduce knows the reduction, or an *ArgumentError.
func (r Reduction) check(call string) (reduce.Type, reduce.Op, error) {
	switch {
	case !r.Type.valid():
		return 0, 0, argument("%s: Reduction.Type is %v: want %s", call, r.Type, names(Int8, len(types)))
	case int(r.Op) >= len(ops):
		return 0, 0, argument("%s: Reduction.Op is %v: want %s", call, r.Op, names(Sum, len(ops)))
	case !ops[r.Op].is.Takes(types[r.Type].is):
		return 0, 0, argument("%s: Reduction.Op is %v and Type %v: bitwise operators take integers alone", call, r.Op, r.Type)
	case r.Op == PremulSum && r.Factor == 0:
		return 0, 0, argument("%s: Reduction.Factor is 0: premulsum multiplies by it, so want any other number", call)
	case r.Op != PremulSum && r.Factor != 0:
		return 0, 0,
			argument("%s: Reduction.Factor is %v and Op %v: only premulsum takes a factor, so want 0", call, r.Factor, r.Op)
	}
	return types[r.Type].is, ops[r.Op].is, nil
}

// names lists the values from first up to, without it, end.
func names[T interface {
	~uint8
	fmt.Stringer
}](first T, end int) string {
	var all []string
	for v := first; int(v) < end; v++ {
		all = append(all, v.String())
	}
	return strings.Join(all, ", ")
}

// Element is what Bytes shows as bytes. A program that has 16- or 8-bit floats has them as unsigned
// integers.
type Element interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Bytes returns the memory of a slice, which it shares.
func Bytes[E Element](s []E) []byte {
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(e)))
}
