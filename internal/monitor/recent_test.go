package monitor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestRecent: a page has who was waited for of late, though others were waited for longer once, who was repaired, and
// the own rank; and says how many it leaves out.
func TestRecent(t *testing.T) {
	const ranks, self = 512, 300
	all := make([]Awaited, ranks)
	for r := range all {
		all[r] = Awaited{Rank: r, Barrier: time.Second}
		if r < 100 {
			all[r].Chunks = time.Hour
		}
		if r >= 400 && r < 440 {
			all[r].Repaired = uint64(1000 + r)
		}
	}
	look := func(l *Recent) (numbers []int, others int) {
		some, others := l.Most(self, append([]Awaited{}, all...))
		for _, a := range some {
			require.Equal(t, all[a.Rank], a)
			numbers = append(numbers, a.Rank)
		}
		return numbers, others
	}
	var l Recent
	numbers, others := look(&l)
	require.Len(t, numbers, 2*mostAwaited+1)
	require.Equal(t, ranks-len(numbers), others)
	require.Subset(t, numbers, []int{0, mostAwaited - 1, self, 439, 408})

	for range 600 { // ten minutes in which 7 other ranks are slow
		for r := 200; r < 207; r++ {
			all[r].Input += time.Second / 4
		}
		l.Pass(all)
	}
	numbers, _ = look(&l)
	require.Subset(t, numbers, []int{200, 201, 202, 203, 204, 205, 206, self, 439})
	for range 3 {
		all[511].Begin += time.Second
		l.Pass(all)
	}
	numbers, _ = look(&l)
	require.Contains(t, numbers, 511)
}

// TestFew: of a small group nothing is left out but who was never waited for.
func TestFew(t *testing.T) {
	var l Recent
	some, others := l.Most(3, []Awaited{{Rank: 0, Barrier: 1}, {Rank: 2, Asked: 1, Repaired: 1}, {Rank: 3, Chunks: 1}})
	require.Equal(t, []Awaited{{Rank: 0, Barrier: 1}, {Rank: 2, Asked: 1, Repaired: 1}, {Rank: 3, Chunks: 1}}, some)
	require.Zero(t, others)
	some, others = l.Most(3, nil)
	require.Empty(t, some)
	require.Zero(t, others)
}

// TestSmallPage: a hundred pages of groups of 512 ranks with the largest counts, and every rank waited for, fit into
// the space that a reader allows a process (internal/live: 8 MiB).
func TestSmallPage(t *testing.T) {
	const (
		ranks, most = 512, 64 << 10
		long        = 1e18 // 30 years
	)
	text200 := strings.Repeat("because ", 25)
	l := Live{
		Info:     Info{Reason: text200, AllgatherReason: text200, ReduceScatterReason: text200, NodesReason: text200},
		Counters: map[string]uint64{},
	}
	new(Stats).each(func(name string, _ uint64) { l.Counters[name] = 0 })
	l.Info.Size, l.Info.Peers, l.Info.Unheard, l.Info.Ring = ranks, make([]fabrics.Peer, ranks),
		make([][2]int, ranks*ranks), team.Everyone(0, ranks).Ranks
	l.Awaited = nil
	for r := range ranks {
		l.Awaited = append(l.Awaited, Awaited{r, long, long, long, long, long, long, long, long})
	}
	for range 4 { // lanes
		l.Waiting = append(l.Waiting, Waiting{
			Operation: "reduce-scatter of 8388608 bytes, number 2141", Ranks: team.Everyone(0, ranks).Ranks,
			Why: "its input has not come", For: long,
		})
	}
	for name := range l.Counters {
		l.Counters[name] = long
	}
	for _, kind := range []string{"barrier", "broadcast", "allgather", "reduce-scatter", "reduce", "allreduce"} {
		for _, class := range []string{"4KiB", "64KiB", "1MiB", "16MiB", "more"} {
			counts, _, _ := new(engine.Histogram).Counts()
			for i := range counts {
				counts[i] = long
			}
			l.Times = append(l.Times,
				hierarchy.Times{Kind: kind, Size: class, Sum: long, Squares: 1.2345678901234567e+100, Counts: counts})
		}
	}
	l.shorten(new(Recent))
	text, err := json.Marshal(l)
	require.NoError(t, err)
	require.Less(t, len(text), most)
	require.Equal(t, ranks-mostAwaited, l.Waiting[0].Others)
}
