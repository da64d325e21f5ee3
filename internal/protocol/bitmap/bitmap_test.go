package bitmap

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAgainstASet compares every operation with a set kept as a slice of bool.
func TestAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Bitmap
		var want []bool
		reset := func(n int) {
			b.Reset(n)
			want = make([]bool, n)
		}
		reset(rapid.IntRange(0, 300).Draw(t, "length"))
		index := func() int { return rapid.IntRange(0, len(want)-1).Draw(t, "index") }
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if len(want) == 0 {
				reset(rapid.IntRange(1, 300).Draw(t, "length"))
			}
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				i := index()
				require.Equal(t, !want[i], b.Set(i))
				want[i] = true
			case 4:
				i := index()
				require.Equal(t, want[i], b.Clear(i))
				want[i] = false
			case 5, 6:
				from := index()
				to := rapid.IntRange(from, len(want)).Draw(t, "to")
				require.Equal(t, first(want, from, to, false), b.NextClear(from, to))
				require.Equal(t, first(want, from, to, true), b.NextSet(from, to))
			case 7:
				from := index()
				to := rapid.IntRange(from, len(want)).Draw(t, "to")
				for i := from; i < to; i++ {
					b.Clear(i)
				}
				clear(want[from:to])
			case 8:
				reset(rapid.IntRange(0, 300).Draw(t, "length"))
			}
			count := 0
			for i, set := range want {
				require.Equal(t, set, b.Has(i))
				if set {
					count++
				}
			}
			require.Equal(t, count, b.Count())
			require.Equal(t, len(want), b.Len())
			require.Equal(t, count == len(want), b.Full())
		}
	})
}

// first returns the first index in [from, to) that holds v, or to.
func first(s []bool, from, to int, v bool) int {
	for i := from; i < to; i++ {
		if s[i] == v {
			return i
		}
	}
	return to
}

func TestResetReusesMemory(t *testing.T) {
	var b Bitmap
	b.Reset(1000)
	allocs := testing.AllocsPerRun(100, func() {
		b.Reset(1000)
		b.Set(999)
	})
	assert.Zero(t, allocs)
}
