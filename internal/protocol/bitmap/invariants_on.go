//go:build invariants

package bitmap

import (
	"fmt"
	"math/bits"
)

// Verify returns an error unless the count is the number of set bits, and no bit is set beyond the length.
func (b *Bitmap) Verify() error {
	ones := 0
	for i, w := range b.words {
		if beyond := (i+1)*64 - b.n; beyond > 0 && w>>(64-min(beyond, 64)) != 0 {
			return fmt.Errorf("bits are set beyond the %d there are", b.n)
		}
		ones += bits.OnesCount64(w)
	}
	if ones != b.count {
		return fmt.Errorf("%d bits are set, and counted %d", ones, b.count)
	}
	return nil
}
