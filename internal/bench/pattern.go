package bench

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// A rank sends a table of random elements, over and over. The table starts
// anew after period elements: a prime, so that a chunk at another chunk's
// place shows. An iteration begins stride elements further on in the table
// than the one before, so that what an earlier one left behind shows.
const (
	period = 65521
	stride = 7919
)

// table returns the elements of a rank. Floating-point ones are of magnitude
// 1 to 2, so that no reduction of a few of them overflows.
func table(t reduce.Type, rank int) []byte {
	random := rand.New(rand.NewPCG(uint64(t), uint64(rank)))
	b := make([]byte, period*t.Size())
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		binary.NativeEndian.PutUint64(word[:], bounded(random.Uint64(), t))
		copy(b[i:], word[:])
	}
	return b
}

// tables returns those of all ranks.
func tables(t reduce.Type, ranks int) [][]byte {
	all := make([][]byte, ranks)
	for r := range all {
		all[r] = table(t, r)
	}
	return all
}

// tables returns those of all ranks of a reduction.
func (b *bench) tables(ranks int) [][]byte {
	all := tables(b.dtype, ranks)
	if b.exact {
		for _, t := range all {
			shorten(t, b.dtype)
		}
	}
	return all
}

// shorten leaves f32 and f64 7 bits of their fraction: then sums of a few of them are exact in any
// order. Those of shorter types are, in the type in which they are added.
func shorten(table []byte, t reduce.Type) {
	keep := ^uint64(0)
	switch t {
	case reduce.F32:
		keep = 0xffff_0000_ffff_0000
	case reduce.F64:
		keep = 0xffff_e000_0000_0000
	}
	for i := 0; i < len(table); i += t.Size() {
		switch t.Size() {
		case 4:
			binary.NativeEndian.PutUint32(table[i:], binary.NativeEndian.Uint32(table[i:])&uint32(keep)) // its low half
		case 8:
			binary.NativeEndian.PutUint64(table[i:], binary.NativeEndian.Uint64(table[i:])&keep)
		}
	}
}

// bounded sets the exponents of the floating-point numbers in w to 0.
func bounded(w uint64, t reduce.Type) uint64 {
	switch t {
	case reduce.E4M3:
		return w&0x8787_8787_8787_8787 | 0x3838_3838_3838_3838
	case reduce.E5M2:
		return w&0x8383_8383_8383_8383 | 0x3c3c_3c3c_3c3c_3c3c
	case reduce.F16:
		return w&0x83ff_83ff_83ff_83ff | 0x3c00_3c00_3c00_3c00
	case reduce.BF16:
		return w&0x807f_807f_807f_807f | 0x3f80_3f80_3f80_3f80
	case reduce.F32:
		return w&0x807f_ffff_807f_ffff | 0x3f80_0000_3f80_0000
	case reduce.F64:
		return w&0x800f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000
	}
	return w
}

// folded returns the table of the reduction that an owner gets. It goes element by element, which
// no vector kernel covers: what those compute is checked against plain Go. nodes are the ranks of each
// host, if hosts sum first; else nil. That many sums for each element would take too long one by one.
func folded(tables [][]byte, nodes [][]int, t reduce.Type, op reduce.Op, owner int) []byte {
	sum := make([]byte, len(tables[0]))
	if nodes != nil {
		reduce.FoldNested(sum, tables, nodes, owner, t, op, factor)
		return sum
	}
	sources := make([][]byte, len(tables))
	for i := 0; i < len(sum); i += t.Size() {
		for r, table := range tables {
			sources[r] = table[i : i+t.Size()]
		}
		reduce.Fold(sum[i:i+t.Size()], reduce.InOrder(sources, owner, t), t, op, factor)
	}
	return sum
}

// position returns where in the table the byte at offset of a buffer lies in
// an iteration.
func position(table []byte, iter, offset int) int {
	element := len(table) / period
	return (iter*stride%period*element + offset) % len(table)
}

// fill writes the pattern of an iteration to b.
func fill(b, table []byte, iter int) {
	at := position(table, iter, 0)
	for len(b) > 0 {
		b = b[copy(b, table[at:]):]
		at = 0
	}
}

// wrong returns how many elements of b differ from the pattern. b[0] is the
// byte at offset of the buffer that the pattern was written to.
func wrong(b, table []byte, iter, offset int) (n uint64) {
	element := len(table) / period
	for at := position(table, iter, offset); len(b) > 0; at = 0 {
		want := table[at:]
		want = want[:min(len(want), len(b))]
		if !bytes.Equal(b[:len(want)], want) {
			for i := 0; i < len(want); i += element {
				if !bytes.Equal(b[i:i+element], want[i:i+element]) {
					n++
				}
			}
		}
		b = b[len(want):]
	}
	return n
}

// wrongOfAny returns how many elements of b differ from the patterns of all tables.
func wrongOfAny(b []byte, tables [][]byte, iter int) (n uint64) {
	const block = 4 << 10
	element := len(tables[0]) / period
	for at := 0; at < len(b); at += block {
		part := b[at:min(at+block, len(b))]
		right := func(from, to int) bool {
			return slices.ContainsFunc(tables,
				func(table []byte) bool { return wrong(part[from:to], table, iter, at+from) == 0 })
		}
		if right(0, len(part)) {
			continue
		}
		for i := 0; i < len(part); i += element {
			if !right(i, i+element) {
				n++
			}
		}
	}
	return n
}
