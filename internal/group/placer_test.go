package group

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlacer reserves at random and holds each place against all older ones: what it must wait for is
// the newest of those that lie where it does, or a newer one that an earlier reservation waited for.
func TestPlacer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		p := placer{bytes: 1 + random.IntN(64)}
		again := p
		var older []place
		var before uint64
		for range 200 {
			bytes := 1 + random.IntN(p.bytes)
			at, ok := p.take(bytes)
			same, _ := again.take(bytes)
			require.Equal(t, at, same)
			require.Equal(t, bytes <= p.bytes/2, ok)
			if !ok {
				continue
			}
			require.EqualValues(t, len(older)+1, at.number)
			require.Equal(t, bytes, at.to-at.from)
			require.True(t, at.from >= 0 && at.to <= p.bytes)
			overlapped := before
			for _, o := range older {
				if o.from < at.to && at.from < o.to {
					overlapped = max(overlapped, o.number)
				}
			}
			require.Equal(t, overlapped, at.after)
			before = at.after
			older = append(older, at)
		}
	}
}

// TestPlacerFitsTwo: of two results of half the ring each, each waits for the one before the last.
func TestPlacerFitsTwo(t *testing.T) {
	p := placer{bytes: 100}
	for n := range uint64(10) {
		at, ok := p.take(50)
		require.True(t, ok)
		require.Equal(t, max(n, 1)-1, at.after)
	}
}
