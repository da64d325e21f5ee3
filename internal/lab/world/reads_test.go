package world

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReads: where links lose multicast, ranks read the chunks that they miss, and see every byte; memory that its rank
// has taken back is never read.
func TestReads(t *testing.T) {
	s := Scenario{
		Seed: 1, Net: Config{
			Ranks: 4, Seed: 1, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 256, Reads: 4, Stray: 0.05,
		},
		Timeout: 5 * time.Second, Registered: 4,
		Faults: []Fault{{What: Drop, From: Anybody, To: Anybody, Flow: Multicast | Control, Share: 0.05}},
	}
	for i := range 20 {
		s.Calls = append(s.Calls, Call{Kind: Allgather, Bytes: 30_000, Async: i%2 == 0},
			Call{Kind: Broadcast, Bytes: 90_000, Root: i % 4, Async: true})
	}
	require.True(t, s.Fit())
	with := Play(t, &s)
	require.NoError(t, with.Err, "%s", with.Log)
	require.Greater(t, with.Reads, 100)

	s.Registered = 0
	without := Play(t, &s)
	require.NoError(t, without.Err, "%s", without.Log)
	require.Zero(t, without.Reads)
}
