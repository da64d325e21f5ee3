package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// TestBetween: an account is what counters and waits have grown by, of ranks that were there before.
func TestBetween(t *testing.T) {
	at := func(rank int, second time.Duration) watch.Rank {
		n := uint64(second)
		counts := make([]uint64, 25)
		counts[16], counts[18] = 9*n/5, n/5
		return watch.Rank{PID: 7, At: second * time.Second, Host: "node3",
			Place: &hoststat.Host{Throttled: second, InBytes: n, Links: []hoststat.Interface{{Name: "eth0", Mbps: 100}}},
			Live: monitor.Live{
				Group: "abc", Info: monitor.Info{Rank: rank, Size: 4, Interface: "eth0"},
				Counters: map[string]uint64{"gather_ops": 50 * n},
				Awaited:  []monitor.Awaited{{Rank: 1, Chunks: second, Repaired: n}},
				Times: []hierarchy.Times{{
					Kind: "allgather", Size: "1MiB", Sum: second * time.Second, Squares: float64(second) / 5 * 4, Counts: counts,
				}},
			}}
	}
	other := at(0, 15)
	other.Group = "def"
	again := at(2, 15)
	jobs := Between([]watch.Rank{at(2, 10), at(1, 10)}, []watch.Rank{at(2, 15), again, at(1, 15), at(0, 15), other})
	require.Len(t, jobs, 1)
	require.Len(t, jobs[0].Accounts, 2,
		"of rank 0 nothing is known from before, and of two of one number the first counts")
	a := jobs[0].Accounts[1]
	require.Equal(t, 2, a.Rank)
	require.Equal(t, 5*time.Second, a.Span)
	require.EqualValues(t, 250, a.Counters["gather_ops"])
	require.Equal(t, []monitor.Awaited{{Rank: 1, Chunks: 5, Repaired: 5}}, a.Awaited)
	require.EqualValues(t, 5, a.Place.Throttled)
	require.EqualValues(t, 5, a.Place.InBytes)
	require.Equal(t, 100, a.link())
	require.InDelta(t, 0.5, a.Took, 1e-9, "ten operations took 5 s")
	require.InDelta(t, 0.15, a.Variance, 1e-9, "... and their squares 4 s^2")
	for _, of := range [][2][]hierarchy.Times{
		{}, {nil, {{Squares: 1}}}, {{{Squares: 1e308}}, {{Counts: []uint64{1}, Squares: 1e308}, {Squares: 1e308}}},
		{nil, {{Counts: []uint64{1}, Squares: 1e308}, {Squares: 1e308}}}, {{{Counts: []uint64{9}}}, {{Counts: []uint64{1}}}},
		{nil, {{Counts: []uint64{1}, Sum: -time.Second}}},
		{{{Squares: 1e308}, {Squares: 1e308}}, {{Counts: []uint64{1}, Squares: 1e308}, {Squares: 1e308}}},
	} {
		mean, variance := took(of[0], of[1])
		require.Zero(t, mean, of)
		require.Zero(t, variance, of)
	}
}

// TestEvenness: what both ranks meet is left out, so that waits show beside operations that take long by themselves.
func TestEvenness(t *testing.T) {
	late := Account{Took: 1, Variance: 0.25}
	for _, c := range []struct {
		waits []float64 // of the other rank, in its operations
		want  float64
	}{
		{nil, 1}, {[]float64{0.5, 0.5, 0.5}, 1}, {[]float64{1, 0}, 0.5}, {[]float64{6, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0.1},
	} {
		var mean, squares float64
		for _, w := range c.waits {
			mean += w / float64(len(c.waits))
			squares += w * w / float64(len(c.waits))
		}
		other := Account{Took: late.Took + mean, Variance: late.Variance + squares - mean*mean}
		require.InDelta(t, c.want, late.evenness(&other), 1e-9, c.waits)
	}
	require.InDelta(t, 1, late.evenness(&Account{Took: 0.5, Variance: 9}), 0, "it does not wait at all")
}

// TestBetweenPages: if only the second page has a rank, the wait for this rank in between is known if the first page
// has all ranks, and unknown if it has left out some.
func TestBetweenPages(t *testing.T) {
	for others, want := range map[int][]monitor.Awaited{
		0: {{Rank: 1, Chunks: 2}, {Rank: 2, Chunks: 900}}, 7: {{Rank: 1, Chunks: 2}},
	} {
		before := watch.Rank{
			At: 1, Live: monitor.Live{Awaited: []monitor.Awaited{{Rank: 1, Chunks: 3}}, AwaitedOthers: others},
		}
		now := watch.Rank{
			At:   2,
			Live: monitor.Live{Awaited: []monitor.Awaited{{Rank: 1, Chunks: 5}, {Rank: 2, Chunks: 900}}, AwaitedOthers: 7},
		}
		require.Equal(t, want, Between([]watch.Rank{before}, []watch.Rank{now})[0].Accounts[0].Awaited)
	}
}

// TestManyRanks: each of 512 ranks waits for each other, and for one of them longer.
func TestManyRanks(t *testing.T) {
	const ranks = 512
	j := &Job{Size: ranks}
	for rank := range ranks {
		a := Account{Rank: rank, Span: time.Second, Counters: map[string]uint64{"gather_busy_ns": 9e8}}
		if rank == 7 {
			a.Counters["gather_busy_ns"] = 3e8
		}
		for other := range ranks {
			w := monitor.Awaited{Rank: other, Barrier: time.Millisecond}
			if other == 7 {
				w.Barrier = 600 * time.Millisecond
			}
			a.Awaited = append(a.Awaited, w)
		}
		j.Accounts = append(j.Accounts, a)
	}
	require.Equal(t, []string{"slow-rank[7]"}, said(Verdict(j)))

	for _, size := range []int{-1, 0, group.MaxRanks + 1, 1e15} {
		j.Size = size
		require.Empty(t, Verdict(j), "size %d", size)
	}
}

// TestPagesOfManyRanks: pages that leave out ranks still lead to the right finding about a rank that is late for a few
// seconds, in a job that once waited longer for other ranks.
func TestPagesOfManyRanks(t *testing.T) {
	const (
		ranks, late      = 512, 300
		before, interval = 5, 10 // seconds
		each             = 16    // of so many ranks one is seen
		wait             = 600 * time.Millisecond
	)
	type seen struct {
		recent  monitor.Recent
		awaited []monitor.Awaited
	}
	all := map[int]*seen{}
	for rank := late % each; rank < ranks; rank += each {
		all[rank] = &seen{}
		for other := range ranks {
			once := time.Minute
			if other < 100 {
				once = time.Hour
			}
			all[rank].awaited = append(all[rank].awaited, monitor.Awaited{Rank: other, Barrier: once})
		}
		for range 300 {
			all[rank].recent.Pass(all[rank].awaited)
		}
	}
	pass := func(seconds int) {
		for rank, s := range all {
			for range seconds {
				for other := range s.awaited {
					s.awaited[other].Barrier += time.Duration(1+(other+rank)%2) * time.Millisecond
				}
				if rank != late {
					s.awaited[late].Barrier += wait
				}
				s.recent.Pass(s.awaited)
			}
		}
	}
	look := func(at time.Duration) (found []watch.Rank) {
		for rank, s := range all {
			busy := at * 9 / 10
			if rank == late {
				busy = at * 3 / 10
			}
			some, others := s.recent.Most(rank, slices.Clone(s.awaited))
			found = append(found, watch.Rank{At: at, Live: monitor.Live{
				Group: "abc", Info: monitor.Info{Rank: rank, Size: ranks},
				Counters: map[string]uint64{"gather_busy_ns": uint64(busy)},
				Awaited:  some, AwaitedOthers: others,
			}})
		}
		return found
	}
	pass(before)
	first := look(time.Hour)
	pass(interval)
	jobs := Between(first, look(time.Hour+interval*time.Second))
	require.Len(t, jobs, 1)
	require.Equal(t, []string{"slow-rank[300]"}, said(Verdict(&jobs[0])))
	for _, a := range jobs[0].Accounts {
		if a.Rank != late {
			require.InDelta(t, float64(interval*wait), float64(a.of(late).Barrier), float64(interval*2*time.Millisecond))
		}
	}
}
