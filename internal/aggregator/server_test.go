package aggregator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/aggregator/aggtest"
	"github.com/torch-mcast/torch-mcast/internal/inc"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
)

const patience = time.Minute // bounds what ought to happen soon

const secret = "correct horse"

func start(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// join brings ranks of a job together, rank r through the node that node gives.
func join(t *testing.T, ranks int, node func(rank int) *Server, change func(*session.Hello)) []*aggtest.Rank {
	t.Helper()
	members, err := tryJoin(t, ranks, node, change)
	require.NoError(t, err)
	return members
}

func tryJoin(t *testing.T, ranks int, node func(rank int) *Server, change func(*session.Hello)) ([]*aggtest.Rank, error) {
	t.Helper()
	members := make([]*aggtest.Rank, ranks)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	job := rand.Uint64()
	var all errgroup.Group
	for r := range ranks {
		h := session.Hello{Job: job, Epoch: 1, Ranks: ranks, Rank: r, Reproducible: true, Timeout: 10 * time.Second}
		if change != nil {
			change(&h)
		}
		all.Go(func() (err error) {
			members[r], err = aggtest.Join(ctx, node(r).Addr().String(), h)
			return err
		})
	}
	err := all.Wait()
	t.Cleanup(func() {
		for _, m := range members {
			if m != nil {
				_ = m.Close()
			}
		}
	})
	return members, err
}

func at(s *Server) func(int) *Server { return func(int) *Server { return s } }

// random fills elements of a type with small whole numbers, so that sums are exact in any order.
func random(rng *rand.Rand, t reduce.Type, n int) []byte {
	small := make([]byte, 4*n)
	for i := range n {
		small[4*i] = byte(rng.IntN(16))
	}
	switch t {
	case reduce.I32:
		return small
	case reduce.F32:
		for i := range n {
			putFloat32(small[4*i:], float32(small[4*i])-8)
		}
		return small
	}
	halves := make([]byte, 2*n) // the upper half of a float32 is a bfloat16
	for i := range n {
		putFloat32(small[4*i:], float32(small[4*i])-8)
		copy(halves[2*i:], small[4*i+2:4*i+4])
	}
	return halves
}

// reduceScatter runs operations on all members at once and checks every byte
// against reduce.Fold in rank order.
func reduceScatter(t *testing.T, seed uint64, members []*aggtest.Rank, ops ...inc.Op) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	ranks := len(members)
	sends, recvs := make([][][]byte, ranks), make([][][]byte, ranks)
	for r := range ranks {
		for _, o := range ops {
			sends[r] = append(sends[r], random(rng, o.Type, ranks*o.Count))
			recvs[r] = append(recvs[r], make([]byte, o.Count*o.Type.Size()))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all errgroup.Group
	for r, m := range members {
		all.Go(func() error {
			for i, o := range ops {
				m.Post(o, sends[r][i], recvs[r][i])
			}
			if err := m.Finish(ctx); err != nil {
				return fmt.Errorf("rank %d: %w", r, err)
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	for i, o := range ops {
		n := o.Count * o.Type.Size()
		for owner := range ranks {
			sources := make([][]byte, ranks)
			for r := range ranks {
				sources[r] = sends[r][i][owner*n:][:n]
			}
			want := make([]byte, n)
			reduce.Fold(want, sources, o.Type, o.Reduction, o.Factor)
			require.NoError(t, aggtest.Equal(want, recvs[owner][i]), "operation %d, rank %d", i, owner)
		}
	}
}

var someOps = []inc.Op{
	{Count: 1, Type: reduce.F32, Reduction: reduce.Sum},
	{Count: 100_003, Type: reduce.F32, Reduction: reduce.Sum},
	{Count: 0, Type: reduce.I32, Reduction: reduce.Sum},
	{Count: 70_001, Type: reduce.BF16, Reduction: reduce.Avg},
	{Count: 33_333, Type: reduce.I32, Reduction: reduce.Max},
	{Count: 999, Type: reduce.F32, Reduction: reduce.PremulSum, Factor: 0.5},
}

func TestReduceScatter(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		for _, workers := range []int{1, 3} {
			for _, fast := range []bool{false, true} {
				for _, word := range []string{"", secret} {
					t.Run(fmt.Sprintf("ranks %d workers %d fast %v secret %q", ranks, workers, fast, word), func(t *testing.T) {
						c := Config{Workers: workers}
						if word != "" {
							c.Secrets = session.Secrets{{Text: word}}
						}
						s := start(t, c)
						members := join(t, ranks, at(s), func(h *session.Hello) { h.Secret, h.Reproducible = word, !fast })
						reduceScatter(t, 1, members, someOps...)
						reduceScatter(t, 2, members, someOps[1])
					})
				}
			}
		}
	}
}
