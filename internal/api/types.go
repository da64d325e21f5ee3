package api

import (
	"strings"

	sums "github.com/torch-mcast/torch-mcast/internal/reduce"
)

// ElementType is one row of the table of element types: a type of internal/reduce, with its names in the languages.
// C and Python use the numbers of internal/reduce.
type ElementType struct {
	sums.Type
	Go    string // its name in pkg/collnet
	Name  string // what collnet prints
	Torch string // torch's dtype
	What  string // what Go says about it; "": the name says it
}

// Const is the name in C, behind MCAST_, and in Python.
func (t ElementType) Const() string { return strings.ToUpper(t.String()) }

// Types returns the table, in the order of collnet's numbers: new types come last.
func Types() []ElementType { return typeTable }

var typeTable = []ElementType{
	{sums.I8, "Int8", "int8", "int8", ""},
	{sums.U8, "Uint8", "uint8", "uint8", ""},
	{sums.I16, "Int16", "int16", "int16", ""},
	{sums.U16, "Uint16", "uint16", "uint16", ""},
	{sums.I32, "Int32", "int32", "int32", ""},
	{sums.U32, "Uint32", "uint32", "uint32", ""},
	{sums.I64, "Int64", "int64", "int64", ""},
	{sums.U64, "Uint64", "uint64", "uint64", ""},
	{sums.E4M3, "Float8E4M3", "float8_e4m3", "float8_e4m3fn", "8-bit float up to 448, without infinities"},
	{sums.E5M2, "Float8E5M2", "float8_e5m2", "float8_e5m2", "8-bit float up to 57344"},
	{sums.F16, "Float16", "float16", "float16", "IEEE 754 binary16"},
	{sums.BF16, "BFloat16", "bfloat16", "bfloat16", "the upper half of a Float32"},
	{sums.F32, "Float32", "float32", "float32", ""},
	{sums.F64, "Float64", "float64", "float64", ""},
}
