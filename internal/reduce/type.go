package reduce

import (
	"fmt"
	"strings"
)

// Type is the type of an element. The numbers are NCCL's (ncclDataType_t);
// the 16-bit integers, which NCCL lacks, come far behind them.
type Type uint8

// The element types.
const (
	I8   Type = 0
	U8   Type = 1
	I32  Type = 2
	U32  Type = 3
	I64  Type = 4
	U64  Type = 5
	F16  Type = 6 // IEEE 754 binary16
	F32  Type = 7
	F64  Type = 8
	BF16 Type = 9  // bfloat16: the upper half of an F32
	E4M3 Type = 10 // 8-bit float up to 448, without infinities (NCCL 2.24's ncclFloat8e4m3)
	E5M2 Type = 11 // 8-bit float up to 57344 (ncclFloat8e5m2)
	I16  Type = 100
	U16  Type = 101
)

// Positions of the types in a table, without a gap.
const (
	positionI8 = iota
	positionU8
	positionI32
	positionU32
	positionI64
	positionU64
	positionF16
	positionF32
	positionF64
	positionBF16
	positionE4M3
	positionE5M2
	positionI16
	positionU16
	numTypes
)

// traits is what the package knows about a type.
type traits struct {
	of   Type
	name string
	size int
	sum  Type // in which partial results are kept
}

// known holds the traits of every type at its position.
var known = [numTypes]traits{
	positionI8:   {I8, "i8", 1, I8},
	positionU8:   {U8, "u8", 1, U8},
	positionI32:  {I32, "i32", 4, I32},
	positionU32:  {U32, "u32", 4, U32},
	positionI64:  {I64, "i64", 8, I64},
	positionU64:  {U64, "u64", 8, U64},
	positionF16:  {F16, "f16", 2, F32},
	positionF32:  {F32, "f32", 4, F32},
	positionF64:  {F64, "f64", 8, F64},
	positionBF16: {BF16, "bf16", 2, F32},
	positionE4M3: {E4M3, "e4m3", 1, F32},
	positionE5M2: {E5M2, "e5m2", 1, F32},
	positionI16:  {I16, "i16", 2, I16},
	positionU16:  {U16, "u16", 2, U16},
}

// position returns where t stands in a table, or -1 for a type that is none.
func (t Type) position() int {
	switch {
	case t <= E5M2:
		return int(t)
	case t == I16:
		return positionI16
	case t == U16:
		return positionU16
	}
	return -1
}

// Valid says whether t is one of the types above.
func (t Type) Valid() bool { return t.position() >= 0 }

func (t Type) integer() bool { return t <= U64 || t == I16 || t == U16 }

// Size returns the bytes of one element; 0 for a type that is not valid.
func (t Type) Size() int {
	if !t.Valid() {
		return 0
	}
	return known[t.position()].size
}

// String returns the name that ParseType takes.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return known[t.position()].name
}

// ParseType returns the type of that name: i8, u8, i16, u16, i32, u32, i64,
// u64, e4m3, e5m2, f16, bf16, f32 or f64.
func ParseType(name string) (Type, error) {
	for _, k := range known {
		if k.name == name {
			return k.of, nil
		}
	}
	return 0, fmt.Errorf("reduce: unknown type %q; want one of %s", name, TypeNames())
}

// TypeNames lists what ParseType takes.
func TypeNames() string {
	names := make([]string, 0, numTypes)
	for _, k := range known {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}
