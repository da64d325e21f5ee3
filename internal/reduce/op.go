package reduce

import (
	"fmt"
	"strings"
)

// Op is the operation over the elements of all sources. The numbers are NCCL's
// (ncclRedOp_t) up to Avg.
type Op uint8

// The operations. Fold says what each of them does exactly.
const (
	Sum       Op = 0
	Prod      Op = 1
	Max       Op = 2
	Min       Op = 3
	Avg       Op = 4
	PremulSum Op = 5
	Band      Op = 6 // bitwise: of integers alone, as the two below
	Bor       Op = 7
	Bxor      Op = 8
	numOps       = 9
)

var opNames = [numOps]string{"sum", "prod", "max", "min", "avg", "premulsum", "band", "bor", "bxor"}

// Valid says whether o is one of the operations above.
func (o Op) Valid() bool { return o < numOps }

// Takes says whether o reduces elements of type t: the bitwise operations reduce integers alone.
func (o Op) Takes(t Type) bool { return o.Valid() && t.Valid() && (o < Band || t.integer()) }

// String returns the name that ParseOp takes.
func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// Words says what a reduction is, for people. The factor is PremulSum's, otherwise 0.
func Words(t Type, o Op, factor float64) string {
	if o == PremulSum || factor != 0 {
		return fmt.Sprintf("%v of %v, factor %v", o, t, factor)
	}
	return fmt.Sprintf("%v of %v", o, t)
}

// ParseOp returns the operation of that name: sum, prod, max, min, avg,
// premulsum, band, bor or bxor.
func ParseOp(name string) (Op, error) {
	for i, n := range opNames {
		if n == name {
			return Op(i), nil
		}
	}
	return 0, fmt.Errorf("reduce: unknown operation %q; want one of %s", name, OpNames())
}

// OpNames lists what ParseOp takes.
func OpNames() string { return strings.Join(opNames[:], ", ") }
