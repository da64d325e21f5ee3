package group

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// short is a limit of the product that a test waits for the end of. What else has to happen within it
// does so on a machine that stands still for some seconds, too.
const short = 10 * time.Second

// waits is for a test that waits most of the time: it does so beside others, and not in the inner
// loop.
func waits(t *testing.T) {
	t.Helper()
	systest.Waits(t)
	t.Parallel()
}

// world joins p ranks in this process, which leave when the test ends.
func world(t testing.TB, p int, change func(*config.Settings)) []*Group {
	t.Helper()
	groups := assemble(t, p, change)
	t.Cleanup(func() { each(t, p, func(r int) error { return groups[r].Close() }) })
	return groups
}

// openAll makes p ranks of this process reachable.
func openAll(t testing.TB, p int, change func(*config.Settings)) ([]*Endpoint, [][]byte) {
	t.Helper()
	s := config.Default()
	s.Timeout = systest.Limit
	if change != nil {
		change(&s)
	}
	eps := make([]*Endpoint, p)
	blobs := make([][]byte, p)
	for r := range p {
		e, err := Open(Options{Rank: r, Size: p, Settings: s})
		require.NoError(t, err)
		eps[r], blobs[r] = e, e.Blob()
	}
	return eps, blobs
}

func assemble(t testing.TB, p int, change func(*config.Settings)) []*Group {
	t.Helper()
	eps, blobs := openAll(t, p, change)
	groups := make([]*Group, p)
	each(t, p, func(r int) (err error) {
		groups[r], err = eps[r].Join(context.Background(), blobs)
		return err
	})
	return groups
}

// each runs f for every rank at the same time and wants it to succeed.
func each(t testing.TB, p int, f func(r int) error) {
	t.Helper()
	errs := make([]error, p)
	var wg sync.WaitGroup
	for r := range p {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[r] = f(r)
		}()
	}
	wg.Wait()
	for r, err := range errs {
		require.NoError(t, err, "rank %d", r)
	}
}

//
//go:norace
func fill(b []byte, seed int) {
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

func TestAllgather(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		for _, p := range []int{1, 2, 3, 4, 7} {
			t.Run(fmt.Sprintf("%s/%d", fabric, p), func(t *testing.T) {
				g := world(t, p, func(s *config.Settings) { s.Fabric = fabric })
				for i, n := range []int{0, 1, 7, 1000, 16 << 10, 70001, 1 << 20, 5, 3000000} {
					if p > 3 && n > 1<<20 {
						continue // many bytes and many ranks are slow under the race detector
					}
					want := make([]byte, p*n)
					for r := range p {
						fill(want[r*n:(r+1)*n], r*100+i)
					}
					each(t, p, func(r int) error {
						recv := make([]byte, p*n)
						if err := g[r].Allgather(append([]byte{}, want[r*n:(r+1)*n]...), recv); err != nil {
							return err
						}
						require.Equal(t, want, recv)
						return nil
					})
				}
			})
		}
	}
}
