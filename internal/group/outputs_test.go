package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// ring sets the memory for results.
func ring(bytes int) func(*config.Settings) {
	return func(s *config.Settings) { s.Fabric, s.Outputs = "shm", bytes }
}

// into reserves a place, waits for it and gathers seed's bytes into it, from its own slot if inPlace.
func into(t *testing.T, g *Group, seed, n int, inPlace bool) (*Output, []byte) {
	t.Helper()
	p := g.Reserve(n)
	require.NotNil(t, p)
	recv, err := p.Wait(time.Time{})
	require.NoError(t, err)
	require.Len(t, recv, n*g.Size())
	own := make([]byte, n)
	if inPlace {
		own = recv[g.Rank()*n:][:n]
	}
	fill(own, seed*100+g.Rank())
	require.NoError(t, g.Allgather(own, recv))
	return p, recv
}

// gathered is what into leaves.
func gathered(size, seed, n int) []byte {
	all := make([]byte, size*n)
	for r := range size {
		fill(all[r*n:][:n], seed*100+r)
	}
	return all
}

// TestOutputs gathers many results of all sizes into a ring that goes round many times, while each
// rank holds some of the last ones and lets go of them in any order; all bytes are compared when they
// come, and again before they go.
func TestOutputs(t *testing.T) {
	for _, p := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			const size, ops = 1 << 20, 300
			g := world(t, p, ring(size))
			sizes := rand.New(rand.NewPCG(1, uint64(p)))
			var bytes []int
			for range ops {
				bytes = append(bytes, 1+sizes.IntN(size/8/p))
			}
			each(t, p, func(r int) error {
				type result struct {
					place *Output
					recv  []byte
					seed  int
				}
				var held []result
				random := rand.New(rand.NewPCG(2, uint64(r)))
				for i, n := range bytes {
					for len(held) > 0 && held[0].seed < i-3 || len(held) > random.IntN(5) {
						k := 0
						if held[0].seed >= i-3 {
							k = random.IntN(len(held))
						}
						require.Equal(t, gathered(p, held[k].seed, bytes[held[k].seed]), held[k].recv, "operation %d, which rank %d held",
							held[k].seed, r)
						held[k].place.Release()
						held = append(held[:k], held[k+1:]...)
					}
					place, recv := into(t, g[r], i, n, i%2 == 0)
					require.Equal(t, gathered(p, i, n), recv)
					held = append(held, result{place, recv, i})
				}
				return nil
			})
			for r := range p {
				s := g[r].Stats()
				require.EqualValues(t, ops, s.SharedOps, "nobody had to decline")
				require.Zero(t, s.Warnings)
			}
		})
	}
}

// TestOutputsWait: a place is handed out only once the slowest rank has released the older result there, and a rank
// that waits longer than it wants to is told which rank it waits for.
func TestOutputsWait(t *testing.T) {
	const p, n = 3, 64 << 10
	g := world(t, p, ring(2*p*n))
	places := make([][2]*Output, p)
	each(t, p, func(r int) error {
		for i := range 2 {
			places[r][i], _ = into(t, g[r], i, n, false)
		}
		return nil
	})
	places[0][0].Release()
	places[2][1].Release() // out of order: it counts once the other is released
	places[2][0].Release()
	third := g[0].Reserve(n)
	_, err := third.Wait(time.Now().Add(10 * time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "rank 1 holds the result")
	require.ErrorContains(t, err, "MCAST_OUTPUTS")
	systest.Later(10*time.Millisecond, places[1][0].Release)
	recv, err := third.Wait(time.Time{})
	require.NoError(t, err)
	require.Len(t, recv, p*n)
}

// TestOutputsDeclined: if one rank's program itself holds the memory that the rank waits for, no
// rank waits, and results lie in each rank's own memory from then on, though the place becomes
// free.
func TestOutputsDeclined(t *testing.T) {
	const p, n = 3, 64 << 10
	g := world(t, p, ring(2*p*n))
	each(t, p, func(r int) error {
		first, recv := into(t, g[r], 0, n, false)
		second, _ := into(t, g[r], 1, n, false)
		if r != 1 {
			first.Release()
		}
		for range 3 {
			third := g[r].Reserve(n)
			mem, err := third.Wait(time.Time{})
			require.NoError(t, err)
			require.Nil(t, mem)
			first.Release() // rank 1 has declined before
			require.NoError(t, g[r].Barrier())
		}
		require.Equal(t, gathered(p, 0, n), recv, "nobody has written there")
		second.Release()
		return nil
	})
	require.Equal(t, []uint64{0, 1, 0}, []uint64{g[0].Stats().Warnings, g[1].Stats().Warnings, g[2].Stats().Warnings})
	require.Contains(t, g[1].Info().Notes[len(g[1].Info().Notes)-1], "MCAST_OUTPUTS")
}

func TestOutputsTooLarge(t *testing.T) {
	g := world(t, 2, ring(256<<10))
	require.Nil(t, g[0].Reserve(64<<10+1))
	require.Nil(t, g[0].Reserve(1<<62))
	require.Nil(t, g[0].Reserve(0))
	require.Nil(t, g[0].Reserve(-1))
	require.NotNil(t, g[0].Reserve(64<<10))
	for _, fabric := range []string{"udp", "shm"} {
		none := world(t, 2, func(s *config.Settings) {
			if s.Fabric = fabric; fabric == "udp" {
				s.Outputs = 1 << 20
			}
		})
		require.Nil(t, none[0].Reserve(1), "%s", fabric)
	}
}

// TestOutputsWrongly: memory among the outputs is gathered into where it was reserved, and once.
func TestOutputsWrongly(t *testing.T) {
	const n = 1000
	g := world(t, 2, ring(256<<10))
	each(t, 2, func(r int) error {
		var wrong *team.ArgumentError
		p, recv := into(t, g[r], 0, n, false)
		for text, recv := range map[string][]byte{
			"reserve one for each": recv,
			"is none that was":     recv[:2],
		} {
			err := g[r].Allgather(make([]byte, len(recv)/2), recv)
			require.ErrorAs(t, err, &wrong)
			require.ErrorContains(t, err, text)
		}
		p.Release()
		p.Release() // does nothing
		require.ErrorAs(t, g[r].Allgather(make([]byte, n), recv), &wrong)
		return nil
	})
}

// TestOutputsMismatch: if ranks reserve differently, or one of them gathers into memory of its own, all ranks get an
// error.
func TestOutputsMismatch(t *testing.T) {
	const n = 1000
	for name, differ := range map[string]func(g *Group) []byte{
		"one more": func(g *Group) []byte {
			g.Reserve(5)
			recv, err := g.Reserve(n).Wait(time.Time{})
			require.NoError(t, err)
			return recv
		},
		"its own memory": func(g *Group) []byte {
			g.Reserve(n)
			return make([]byte, n*g.Size())
		},
	} {
		t.Run(name, func(t *testing.T) {
			const p = 3
			g := assemble(t, p, ring(256<<10))
			each(t, p, func(r int) error {
				var recv []byte
				if r == 1 {
					recv = differ(g[r])
				} else {
					var err error
					recv, err = g[r].Reserve(n).Wait(time.Time{})
					require.NoError(t, err)
				}
				f := asFault(t, g[r].Allgather(make([]byte, n), recv))
				require.Equal(t, mesh.Mismatch, f.Kind, "%v", f)
				return nil
			})
			for r := range p {
				_ = g[r].Close()
			}
		})
	}
}

func TestOutputsAreAgreedOn(t *testing.T) {
	a, b := config.Default(), config.Default()
	a.Outputs = 1 << 20
	require.ErrorContains(t, team.DifferentSettings(a.Agreed(), b.Agreed(), 3),
		"rank 0 has MCAST_OUTPUTS=1048576, rank 3 MCAST_OUTPUTS=0")
}

// TestOutputsOfTheDead: who waits for a rank that is gone gets its fault.
func TestOutputsOfTheDead(t *testing.T) {
	const n = 64 << 10
	g := assemble(t, 2, ring(2*2*n))
	each(t, 2, func(r int) error {
		for i := range 2 {
			p, _ := into(t, g[r], i, n, false)
			if r == 0 {
				p.Release()
			}
		}
		return nil
	})
	systest.Later(10*time.Millisecond, func() { _ = g[1].Abort("its script ended") })
	_, err := g[0].Reserve(n).Wait(time.Time{})
	require.Equal(t, 1, asFault(t, err).Rank)
	_ = g[0].Close()
}

// TestOutputsOutliveTheirGroup: a program may read a result until its Release.
func TestOutputsOutliveTheirGroup(t *testing.T) {
	const n = 1000
	g := assemble(t, 2, ring(256<<10))
	each(t, 2, func(r int) error {
		p, recv := into(t, g[r], 7, n, true)
		_ = g[r].Close()
		require.Equal(t, gathered(2, 7, n), recv)
		p.Release()
		return nil
	})
}
