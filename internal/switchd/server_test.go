package switchd

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd/switchtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const secret = "correct-horse-battery-staple"

func start(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// join brings ranks of a job together, rank r through the switch that node gives.
func join(t *testing.T, ranks int, node func(rank int) *Server, change func(*session.Hello)) []*switchtest.Rank {
	t.Helper()
	members, err := tryJoin(t, ranks, node, change)
	require.NoError(t, err)
	return members
}

func tryJoin(
	t *testing.T, ranks int, node func(rank int) *Server, change func(*session.Hello),
) ([]*switchtest.Rank, error) {
	t.Helper()
	members := make([]*switchtest.Rank, ranks)
	ctx := systest.Context(t)
	job := rand.Uint64()
	var all errgroup.Group
	for r := range ranks {
		h := session.Hello{Job: job, Epoch: 1, Ranks: ranks, Rank: r, Reproducible: true, Timeout: systest.Limit}
		if change != nil {
			change(&h)
		}
		all.Go(func() (err error) {
			members[r], err = switchtest.Join(ctx, node(r).Addr().String(), h)
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

func putFloat32(b []byte, v float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(v)) }

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
// against reduce.Fold in the order of reduce.InOrder.
func reduceScatter(t *testing.T, seed uint64, members []*switchtest.Rank, ops ...collective.Op) {
	t.Helper()
	require.NoError(t, tryReduceScatter(t, seed, members, ops...))
}

func tryReduceScatter(t *testing.T, seed uint64, members []*switchtest.Rank, ops ...collective.Op) error {
	t.Helper()
	ranks := len(members)
	sends, recvs := inputs(seed, ranks, ops...), make([][][]byte, ranks)
	for r := range ranks {
		for _, o := range ops {
			recvs[r] = append(recvs[r], make([]byte, o.Count*o.Type.Size()))
		}
	}
	ctx := systest.Context(t)
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
	if err := all.Wait(); err != nil {
		return err
	}
	return checkSums(sends, recvs, ops...)
}

// inputs returns those of all ranks, by operation.
func inputs(seed uint64, ranks int, ops ...collective.Op) [][][]byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	sends := make([][][]byte, ranks)
	for r := range ranks {
		for _, o := range ops {
			sends[r] = append(sends[r], random(rng, o.Type, ranks*o.Count))
		}
	}
	return sends
}

// checkSums compares the results of all ranks, by operation, with the expected ones.
func checkSums(sends, recvs [][][]byte, ops ...collective.Op) error {
	for i, o := range ops {
		n := o.Count * o.Type.Size()
		for owner := range recvs {
			sources := make([][]byte, len(sends))
			for r := range sends {
				sources[r] = sends[r][i][owner*n:][:n]
			}
			want := make([]byte, n)
			reduce.Fold(want, reduce.InOrder(sources, owner, o.Type), o.Type, o.Reduction, o.Factor)
			if err := switchtest.Equal(want, recvs[owner][i]); err != nil {
				return fmt.Errorf("operation %d, rank %d: %w", i, owner, err)
			}
		}
	}
	return nil
}

var someOps = []collective.Op{
	{Count: 1, Type: reduce.F32, Reduction: reduce.Sum},
	{Count: 40_003, Type: reduce.F32, Reduction: reduce.Sum},
	{Count: 0, Type: reduce.I32, Reduction: reduce.Sum},
	{Count: 30_001, Type: reduce.BF16, Reduction: reduce.Avg},
	{Count: 12_345, Type: reduce.I32, Reduction: reduce.Max},
	{Count: 999, Type: reduce.F32, Reduction: reduce.PremulSum, Factor: 0.5},
}

func TestReduceScatter(t *testing.T) {
	for _, c := range []struct {
		ranks, workers int
		fast           bool
		secret         string
		encrypt        bool
		offload        batch.Offload
		chunk          int
	}{
		{ranks: 1, workers: 1},
		{ranks: 2, workers: 1},
		{ranks: 3, workers: 2, secret: secret},
		{ranks: 4, workers: 3, fast: true},
		{ranks: 5, workers: 1, fast: true, secret: secret},
		{ranks: 5, workers: 4, offload: batch.OffloadSingle},
		{ranks: 3, workers: 2, chunk: 1416},
		{ranks: 3, workers: 1, chunk: 1416, fast: true, secret: secret, offload: batch.OffloadBatch},
		{ranks: 2, workers: 2, chunk: 20_000},
		{ranks: 3, workers: 2, secret: secret, encrypt: true},
		{ranks: 3, workers: 1, chunk: 1416, fast: true, secret: secret, encrypt: true, offload: batch.OffloadBatch},
		{ranks: 2, workers: 2, chunk: 20_000, secret: secret, encrypt: true, offload: batch.OffloadSingle},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			s := start(t, Config{Workers: c.workers, Secrets: secrets(c.secret), Offload: c.offload, Chunk: c.chunk})
			members := join(t, c.ranks, at(s), func(h *session.Hello) {
				h.Secret, h.Encrypt, h.Reproducible, h.Offload = c.secret, c.encrypt, !c.fast, c.offload
			})
			require.Equal(t, c.workers*c.ranks, members[0].Terms.Stripes)
			require.Equal(t, c.ranks, members[0].Terms.Tracks)
			if c.chunk > 0 {
				require.Equal(t, c.chunk&^(grain-1), members[0].Terms.Chunk)
			}
			reduceScatter(t, 1, members, someOps...)
			reduceScatter(t, 2, members, someOps[1])
		})
	}
}

func secrets(word string) session.Secrets {
	if word == "" {
		return nil
	}
	return session.Secrets{{Name: "tenant", Text: word}}
}

// TestReproducible gives sums that depend on the order, which must be the order of the ranks.
func TestReproducible(t *testing.T) {
	s := start(t, Config{Workers: 2})
	members := join(t, 4, at(s), nil)
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const count = 50_000
		sends, recvs := make([][]byte, 4), make([][]byte, 4)
		var all errgroup.Group
		for r, m := range members {
			sends[r], recvs[r] = make([]byte, 4*count*4), make([]byte, count*4)
			for i := range 4 * count {
				putFloat32(sends[r][4*i:], float32(rng.NormFloat64()))
			}
			late := time.Duration(rng.IntN(3)) * time.Millisecond
			all.Go(func() error {
				systest.Pause(late)
				return m.ReduceScatter(t.Context(), collective.Op{Count: count, Type: reduce.F32}, sends[r], recvs[r])
			})
		}
		require.NoError(t, all.Wait())
		for owner := range members {
			sources := make([][]byte, 4)
			for r := range sources {
				sources[r] = sends[r][owner*count*4:][:count*4]
			}
			want := make([]byte, count*4)
			reduce.Fold(want, reduce.InOrder(sources, owner, reduce.F32), reduce.F32, reduce.Sum, 0)
			require.NoError(t, switchtest.Equal(want, recvs[owner]), "seed %d, rank %d", seed, owner)
		}
	}
}

// TestTree sums at three switches: two have ranks, and one of those fewer workers
// than the root, which has a rank of its own.
func TestTree(t *testing.T) {
	for name, c := range map[string]struct {
		below   func(rank int) int
		fast    bool
		secret  string
		encrypt bool
	}{
		"contiguous":             {below: func(rank int) int { return 1 + rank/3 }},
		"contiguous fast":        {below: func(rank int) int { return 1 + rank/3 }, fast: true},
		"scattered sealed":       {below: func(rank int) int { return 1 + rank%2 }, secret: secret},
		"root too":               {below: func(rank int) int { return rank % 3 }},
		"root too, fast, sealed": {below: func(rank int) int { return rank % 3 }, fast: true, secret: secret},
		"one child":              {below: func(int) int { return 2 }},
		"root too, encrypted":    {below: func(rank int) int { return rank % 3 }, secret: secret, encrypt: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := start(t, Config{Workers: 2, Secrets: secrets(c.secret)})
			nodes := []*Server{root}
			for workers := range 2 {
				nodes = append(nodes,
					start(t, Config{Workers: workers + 1, Secrets: secrets(c.secret), Parent: root.Addr().String()}))
			}
			members := join(t, 5, func(r int) *Server { return nodes[c.below(r)] },
				func(h *session.Hello) { h.Secret, h.Encrypt, h.Reproducible = c.secret, c.encrypt, !c.fast })
			require.True(t, members[0].Terms.Wide)
			reduceScatter(t, 1, members, someOps...)
			reduceScatter(t, 2, members, someOps[3], someOps[1])
		})
	}
}

// TestDeepTree has a switch that is child and parent.
func TestDeepTree(t *testing.T) {
	root := start(t, Config{})
	middle := start(t, Config{Parent: root.Addr().String()})
	leaf := start(t, Config{Parent: middle.Addr().String(), Memory: 2 << 20, JobMemory: 2 << 20})
	nodes := []*Server{root, middle, leaf}
	members := join(t, 4, func(r int) *Server { return nodes[min(r, 2)] }, nil)
	require.LessOrEqual(t, leaf.Stats().Memory, int64(2<<20))
	reduceScatter(t, 1, members, someOps...)
	for _, m := range members {
		require.Equal(t, members[0].Terms.Slots, m.Terms.Slots)
	}
}

func TestLoss(t *testing.T) {
	for _, c := range []struct {
		tree  bool
		chunk int
	}{{false, 0}, {true, 0}, {false, 1408}, {true, 1408}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			node := start(t, Config{Workers: 2, Chunk: c.chunk})
			root := node
			if c.tree {
				node = start(t, Config{Parent: root.Addr().String()})
			}
			members := join(t, 3, func(r int) *Server { return []*Server{node, root}[r%2] }, nil)
			loss := 0.03
			if c.chunk == 0 { // there are few datagrams
				loss = 0.13
			}
			for r, m := range members {
				m.Lossy(loss, uint64(r))
			}
			reduceScatter(t, 3, members, someOps...)
			for _, m := range members {
				require.Positive(t, m.Stats().Injected)
			}
		})
	}
}
