package team

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlacer reserves at random and compares each place with all older ones: it must wait for the newest reservation
// that it overlaps, or for a newer one that an earlier reservation waited for.
func TestPlacer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		p := Placer{Bytes: 1 + random.IntN(64)}
		again := p
		var older []Place
		var before uint64
		for range 200 {
			bytes := 1 + random.IntN(p.Bytes)
			at, ok := p.Take(bytes)
			same, _ := again.Take(bytes)
			require.Equal(t, at, same)
			require.Equal(t, bytes <= p.Bytes/2, ok)
			if !ok {
				continue
			}
			require.EqualValues(t, len(older)+1, at.Number)
			require.Equal(t, bytes, at.to-at.From)
			require.True(t, at.From >= 0 && at.to <= p.Bytes)
			overlapped := before
			for _, o := range older {
				if o.From < at.to && at.From < o.to {
					overlapped = max(overlapped, o.Number)
				}
			}
			require.Equal(t, overlapped, at.After)
			before = at.After
			older = append(older, at)
		}
	}
}

// TestPlacerFitsTwo: of two results of half the ring each, each waits for the one before the last.
func TestPlacerFitsTwo(t *testing.T) {
	p := Placer{Bytes: 100}
	for n := range uint64(10) {
		at, ok := p.Take(50)
		require.True(t, ok)
		require.Equal(t, max(n, 1)-1, at.After)
	}
}
