// Package bitmap records which chunks of a buffer have arrived (Khalilov et al. (SC24),
// III-C): one bit a chunk, and the runs of missing ones on demand.
package bitmap

import "math/bits"

// Bitmap is a set of the numbers 0 to Len-1. The zero value has length 0. While no bit has been
// set it takes no memory.
type Bitmap struct {
	count int
	n     int
	words []uint64 // none while no bit has been set
}

// Reset makes the bitmap n bits long, all clear, and reuses its memory.
func (b *Bitmap) Reset(n int) {
	b.words, b.n, b.count = b.words[:0], n, 0
}

// grow takes the memory that Reset has left for the first bit set.
func (b *Bitmap) grow() {
	w := (b.n + 63) / 64
	if cap(b.words) < w {
		b.words = make([]uint64, w)
		return
	}
	b.words = b.words[:w]
	clear(b.words)
}

// Len returns the number of bits.
func (b *Bitmap) Len() int { return b.n }

// Count returns how many bits are set.
func (b *Bitmap) Count() int { return b.count }

// Full reports whether every bit is set.
func (b *Bitmap) Full() bool { return b.count == b.n }

// Has reports whether bit i is set.
func (b *Bitmap) Has(i int) bool { return b.count != 0 && b.words[i>>6]&(1<<(i&63)) != 0 }

// Set sets bit i and reports whether it was clear.
func (b *Bitmap) Set(i int) bool {
	if len(b.words) == 0 {
		b.grow()
	}
	w, m := &b.words[i>>6], uint64(1)<<(i&63)
	if *w&m != 0 {
		return false
	}
	*w |= m
	b.count++
	return true
}

// Clear clears bit i and reports whether it was set.
func (b *Bitmap) Clear(i int) bool {
	if b.count == 0 {
		return false
	}
	w, m := &b.words[i>>6], uint64(1)<<(i&63)
	if *w&m == 0 {
		return false
	}
	*w &^= m
	b.count--
	return true
}

// NextClear returns the first clear bit in [from, to), or to if there is none.
func (b *Bitmap) NextClear(from, to int) int { return b.next(from, to, ^uint64(0)) }

// NextSet returns the first set bit in [from, to), or to if there is none.
func (b *Bitmap) NextSet(from, to int) int { return b.next(from, to, 0) }

// next finds the first set bit of words^flip in [from, to).
func (b *Bitmap) next(from, to int, flip uint64) int {
	if b.count == 0 {
		if flip == 0 || from >= to {
			return to
		}
		return from
	}
	for i := from; i < to; {
		if w := (b.words[i>>6] ^ flip) >> (i & 63); w != 0 {
			return min(i+bits.TrailingZeros64(w), to)
		}
		i = (i | 63) + 1
	}
	return to
}
