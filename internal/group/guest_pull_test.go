package group

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestVerbsPull: where links lose 2 % of all packets and buffers are registered, what is lost is read from the left neighbour's, and
// nothing is pushed; unregistered, all is. A device that was kept from running for long has given up reading: then it is tried anew.
func TestVerbsPull(t *testing.T) {
	needDevices(t)
	lossy(t, "2%", four...)
	const n, rounds = 300_000, 4 // the last chunk is short
	for try := 1; ; try++ {
		g := overDevices(t, []Network{nil}, four, nil)
		results := make([][]byte, len(g))
		for r := range g {
			results[r] = make([]byte, len(g)*n)
		}
		repaired := func(round int) (pushed, read uint64) {
			each(t, len(g), func(r int) error {
				clear(results[r])
				want := make([]byte, len(results[r]))
				fill(want, round)
				own := results[r][r*n:][:n]
				copy(own, want[r*n:])
				if err := g[r].Allgather(own, results[r]); err != nil {
					return err
				}
				require.True(t, bytes.Equal(want, results[r]), "Allgather %d, rank %d", round, r)
				copy(own, want[r*n:])
				if err := g[r].Broadcast(results[r], round%len(g)); err != nil {
					return err
				}
				require.True(t, bytes.Equal(want, results[r]), "Broadcast %d, rank %d", round, r)
				clear(results[r]) // it is the caller's again
				return nil
			})
			for r := range g {
				s := g[r].Stats()
				pushed, read = pushed+s.ChunksRepaired-s.ChunksRead, read+s.ChunksRead
			}
			return pushed, read
		}
		pushed, read := repaired(0)
		for i := 1; i < rounds; i++ {
			pushed, read = repaired(i)
		}
		require.Positive(t, pushed)
		require.Zero(t, read, "nothing is registered")
		for r := range g {
			_, err := g[r].Register(results[r])
			require.NoError(t, err)
		}
		registered := g[1].Stats().Registrations
		before := pushed
		for i := range rounds {
			pushed, read = repaired(i)
		}
		require.Equal(t, registered, g[1].Stats().Registrations, "nothing is registered in the steady state")
		t.Logf("%d chunks pushed in %d rounds, with registered buffers %d and %d read", before, rounds, pushed-before, read)
		if read > 0 && pushed == before {
			return
		}
		require.Less(t, try, tries)
	}
}

// TestVerbsPullKilled: a rank that is killed while all read from each other what links lose is named by the others, within MCAST_TIMEOUT.
func TestVerbsPullKilled(t *testing.T) {
	needDevices(t)
	kids := startRanks(t, role{
		Size: len(four), Interfaces: four, Fabric: "verbs", Timeout: 30 * time.Second, Call: "allgather", Register: true, Await: true,
	})
	lossy(t, "2%", four...)
	kill(t, kids)
}
