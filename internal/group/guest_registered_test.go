package group

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
)

// TestVerbsRegistered: a device sends from memory that is registered, nothing is registered after the first step, and
// what others receive are the bytes that were there, though the sender fills its shard anew as soon as it may.
func TestVerbsRegistered(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, four, nil)
	const n = 100_000 // the last chunk is short
	p := len(g)
	shards := make([][]byte, p)
	memories := make([]*Memory, p)
	for r := range p {
		shards[r] = make([]byte, n)
		var err error
		memories[r], err = g[r].Register(shards[r])
		require.NoError(t, err)
	}
	step := func(i int) {
		each(t, p, func(r int) error {
			recv, want := make([]byte, p*n), make([]byte, p*n)
			for root := range p {
				fill(want[root*n:][:n], 100*i+root)
			}
			fill(shards[r], 100*i+r)
			if err := g[r].Allgather(shards[r], recv); err != nil {
				return err
			}
			fill(shards[r], 99) // it is the caller's again
			require.True(t, bytes.Equal(want, recv), "Allgather of step %d, rank %d", i, r)
			fill(want[:n], 200+i)
			if r == 1 {
				copy(shards[r], want)
			}
			if err := g[r].Broadcast(shards[r], 1); err != nil {
				return err
			}
			require.True(t, bytes.Equal(want[:n], shards[r]), "Broadcast of step %d, rank %d", i, r)
			return nil
		})
	}
	step(0)
	registered, steps := g[1].Stats().Registrations, 0
	lent := func() bool { // whether the device has read every byte of a step's shards by itself
		before := g[1].Stats().GatherLentBytes
		steps++
		step(steps)
		return g[1].Stats().GatherLentBytes == before+2*n
	}
	for range 4 {
		for try := 1; !lent(); try++ {
			require.Less(t, try, tries)
		}
	}
	s := g[1].Stats()
	require.Equal(t, registered, s.Registrations, "nothing is registered in the steady state")
	require.Zero(t, s.RegistrationsRefused)

	for r := range p {
		require.NoError(t, memories[r].Release())
		require.NoError(t, memories[r].Release(), "again")
	}
	step(steps + 1)
	require.Equal(t, s.GatherLentBytes, g[1].Stats().GatherLentBytes, "it is copied again")
}

// TestVerbsRefused: memory that cannot be registered goes by copy, and that is said once.
func TestVerbsRefused(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, []string{"h1", "h2"}, nil)
	b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	require.NoError(t, unix.Munmap(b)) // memory that nobody can lock
	for range 2 {
		m, err := g[0].Register(b)
		require.NoError(t, err)
		require.NoError(t, m.Release())
	}
	require.EqualValues(t, 2, g[0].Stats().RegistrationsRefused)
	notes := strings.Join(g[0].Info().Notes, "\n")
	require.Equal(t, 1, strings.Count(notes, "rank 0 cannot register 1048576 bytes"), notes)
	require.Contains(t, notes, "device rxe1")
	_, err = g[0].Register(nil)
	require.ErrorContains(t, err, "want 1 byte at least")
}
