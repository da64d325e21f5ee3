package collnet

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Reduction says what is done with the elements of all ranks.
type Reduction struct {
	Type Type // of the elements; there is no default
	Op   Op   // Sum by default
	// Factor multiplies every input of PremulSum, which needs one; other operators take none.
	Factor float64
}

// Type is the type of an element.
type Type uint8

// The element types. The zero value is none of them.
const (
	Int8 Type = 1 + iota
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
	Float8E4M3 // 8-bit float up to 448, without infinities
	Float8E5M2 // 8-bit float up to 57344
	Float16    // IEEE 754 binary16
	BFloat16   // the upper half of a Float32
	Float32
	Float64
)

var types = [...]struct {
	name string
	is   reduce.Type
}{
	Int8: {"int8", reduce.I8}, Uint8: {"uint8", reduce.U8}, Int16: {"int16", reduce.I16}, Uint16: {"uint16", reduce.U16},
	Int32: {"int32", reduce.I32}, Uint32: {"uint32", reduce.U32}, Int64: {"int64", reduce.I64}, Uint64: {"uint64", reduce.U64},
	Float8E4M3: {"float8_e4m3", reduce.E4M3}, Float8E5M2: {"float8_e5m2", reduce.E5M2},
	Float16: {"float16", reduce.F16}, BFloat16: {"bfloat16", reduce.BF16}, Float32: {"float32", reduce.F32}, Float64: {"float64", reduce.F64},
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

// Op is an operator.
type Op uint8

// The operators.
const (
	Sum Op = iota
	Prod
	Max
	Min
	Avg       // the sum by the number of ranks; of integers the quotient is cut off
	PremulSum // the sum of inputs times Reduction.Factor
)

var ops = [...]struct {
	name string
	is   reduce.Op
}{
	Sum: {"sum", reduce.Sum}, Prod: {"prod", reduce.Prod}, Max: {"max", reduce.Max}, Min: {"min", reduce.Min},
	Avg: {"avg", reduce.Avg}, PremulSum: {"premulsum", reduce.PremulSum},
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
	case r.Op == PremulSum && r.Factor == 0:
		return 0, 0, argument("%s: Reduction.Factor is 0: premulsum multiplies by it, so want any other number", call)
	case r.Op != PremulSum && r.Factor != 0:
		return 0, 0, argument("%s: Reduction.Factor is %v and Op %v: only premulsum takes a factor, so want 0", call, r.Factor, r.Op)
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
