package group

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// TestVerbsPull: where links lose 2 % of all packets and buffers are registered, a rank reads lost chunks from the left
// neighbour's buffer, and nothing is pushed to it; unregistered, all chunks are pushed. A registered rank is pushed
// chunks only if its device has given up reading, by its own count, because some process did not run for long: the test
// tries anew until there was no such device.
func TestVerbsPull(t *testing.T) {
	needDevices(t)
	lossy(t, "2%", four...)
	const n, rounds = 300_000, 4 // the last chunk is short
	for try := 1; ; try++ {
		g := overDevices(t, []hostnet.Network{nil}, four, nil)
		results := make([][]byte, len(g))
		for r := range g {
			results[r] = make([]byte, len(g)*n)
		}
		// repair has rounds done, and returns how many chunks were pushed to each rank, and read by it.
		repair := func() (pushed, read []uint64) {
			before := make([]monitor.Stats, len(g))
			for r := range g {
				before[r] = g[r].Stats()
			}
			for round := range rounds {
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
			}
			for r := range g {
				s := g[r].Stats()
				reads := s.ChunksRead - before[r].ChunksRead
				pushed, read = append(pushed, s.ChunksRepaired-before[r].ChunksRepaired-reads), append(read, reads)
			}
			return pushed, read
		}
		pushed, read := repair()
		require.Positive(t, slices.Max(pushed))
		require.Zero(t, slices.Max(read), "nothing is registered")
		for r := range g {
			_, err := g[r].Register(results[r])
			require.NoError(t, err)
		}
		registered, gaveUp := g[1].Stats().Registrations, make([]uint64, len(g))
		for r := range g {
			gaveUp[r] = ofDevice(t, four[r], "retry_exceeded_err")
		}
		pushed, read = repair()
		require.Equal(t, registered, g[1].Stats().Registrations, "nothing is registered in the steady state")
		t.Logf("try %d: with registered buffers %d chunks were pushed, by rank, and %d read", try, pushed, read)
		well := true
		for r := range g {
			if ofDevice(t, four[r], "retry_exceeded_err") > gaveUp[r] {
				well = false
				continue
			}
			require.Zero(t, pushed[r], "rank %d, whose device has not given up reading", r)
		}
		if well {
			require.Positive(t, slices.Max(read))
			return
		}
		require.Less(t, try, tries)
	}
}

// TestVerbsPullKilled: a rank that is killed while all read from each other what links lose is named by the others.
func TestVerbsPullKilled(t *testing.T) {
	needDevices(t)
	kids := startRanks(t, role{
		Size: len(four), Interfaces: four, Fabric: "verbs", Timeout: 30 * time.Second, Call: "allgather", Register: true,
		Await: true,
	})
	lossy(t, "2%", four...)
	kill(t, kids)
}
