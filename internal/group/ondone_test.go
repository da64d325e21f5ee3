package group

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestOnDoneOfEveryKind: operations of all kinds, far more than may be in flight, end
// although nobody waits for any, and each says so once; that is how NCCL's plugin uses them.
func TestOnDoneOfEveryKind(t *testing.T) {
	const p, rounds = 4, 40
	onBoth(t, p, func(t *testing.T, g []*Group) {
		each(t, p, func(r int) error {
			var flying sync.WaitGroup
			var called, posted atomic.Int64
			post := func(w *Work, err error) {
				require.NoError(t, err)
				posted.Add(1)
				flying.Add(1)
				w.OnDone(func(err error) {
					require.NoError(t, err)
					called.Add(1)
					flying.Done()
				})
			}
			var checks []func()
			for i := range rounds {
				checks = append(checks, everyKind(t, g[r], i%p, post))
			}
			all := make(chan struct{})
			go func() {
				flying.Wait()
				close(all)
			}()
			systest.Receive(t, all, "%d of %d are done", called.Load(), posted.Load())
			require.NoError(t, g[r].Barrier()) // a hook that is called twice has been by then
			require.Equal(t, posted.Load(), called.Load())
			for _, check := range checks {
				check()
			}
			return nil
		})
	})
}

// everyKind posts one operation of each kind on a rank and returns what compares the results.
func everyKind(t *testing.T, g *Group, root int, post func(*Work, error)) (check func()) {
	const n, cut = 4096, 4
	p, r := g.Size(), g.Rank()
	want := make([]byte, p*n)
	fill(want, 7)
	ones, sum := recvLike(p*n, 1), recvLike(p*n, uint32(p))
	wanted := part{want[cut : p*n-cut], n, cut}

	gathered, word, middle := make([]byte, p*n), make([]byte, n), make([]byte, p*n-2*cut)
	if r == root {
		copy(word, want)
	}
	post(g.StartAllgather(want[r*n:][:n], gathered))
	post(g.StartBroadcast(word, root))
	post(g.StartBarrier())
	post(g.StartAllgatherPart(wanted.in(r), middle, n, cut))

	shard, rooted, reduced, tiny := make([]byte, n), make([]byte, n), make([]byte, p*n), make([]byte, 8)
	input := part{ones[cut : p*n-cut], n, cut}
	some := make([]byte, len(input.in(r)))
	post(g.StartReduceScatter(ones, shard, reduce.I32, reduce.Sum, 0))
	post(g.StartReduce(ones[:n], rooted, reduce.I32, reduce.Sum, 0, root))
	post(g.StartReduceScatterPart(input.buf, some, n, cut, reduce.I32, reduce.Sum, 0))
	post(g.StartAllreduce(ones, reduced, reduce.I32, reduce.Sum, 0))
	post(g.StartAllreduce(ones[:8], tiny, reduce.I32, reduce.Sum, 0))
	return func() {
		require.Equal(t, want, gathered)
		require.Equal(t, want[:n], word)
		require.Equal(t, wanted.buf, middle)
		require.Equal(t, sum[:n], shard)
		if r == root {
			require.Equal(t, sum[:n], rooted)
		}
		require.Equal(t, sum[:len(some)], some)
		require.Equal(t, sum, reduced)
		require.Equal(t, sum[:8], tiny)
	}
}
