package group

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestLive: who looks at a process sees its groups as they are, from Join to Close, unless MCAST_METRICS is off.
func TestLive(t *testing.T) {
	dir := systest.ShortDir(t)
	const p, n = 2, 5000
	see := func() (all []monitor.Live) {
		pages, errs := live.Read[monitor.Live]([]string{dir})
		require.Empty(t, errs)
		for _, page := range pages {
			all = append(all, page.Groups...)
		}
		return all
	}
	unseen := world(t, p, func(s *config.Settings) { s.Metrics = "off" })
	require.Empty(t, see())
	g := world(t, p, func(s *config.Settings) { s.Metrics = dir })
	each(t, p, func(r int) error {
		if err := g[r].Allgather(make([]byte, n), make([]byte, p*n)); err != nil {
			return err
		}
		return g[r].Allreduce(make([]byte, n), make([]byte, n), reduce.U8, reduce.Sum, 1)
	})
	all := see()
	require.Len(t, all, p)
	for _, l := range all {
		s := g[l.Info.Rank].Stats()
		require.Equal(t, s.GatherOps, l.Counters["gather_ops"])
		require.Equal(t, uint64(s.GatherPeers), l.Counters["gather_peers_ns"])
		require.Equal(t, g[l.Info.Rank].ops.Times(), l.Times)
		require.Zero(t, l.GatherInFlight+l.ReduceInFlight)
		require.Empty(t, l.Failed)
		require.Equal(t, all[0].Group, l.Group)
		count := map[string]uint64{}
		for _, times := range l.Times {
			for _, k := range times.Counts {
				count[times.Kind+" "+times.Size] += k
			}
		}
		require.EqualValues(t, 1, count["allreduce 64KiB"])
		require.Positive(t, count["allgather 64KiB"])
		var gathers uint64
		for kind, k := range count {
			if !slices.Contains([]string{"allreduce 64KiB", "reduce-scatter 4KiB", "reduce-scatter 64KiB"}, kind) {
				gathers += k
			}
		}
		require.Equal(t, s.GatherOps, gathers, "every operation is in a histogram, once: %v", count)
	}
	each(t, p, func(r int) error { return g[r].Close() })
	require.Empty(t, see())
	each(t, p, func(r int) error { return unseen[r].Close() })
}

// TestSmallPages: a page of a group that has done something has a bound, of which internal/monitor fills the rest.
func TestSmallPages(t *testing.T) {
	g := world(t, 2, nil)
	each(t, 2, func(r int) error {
		return g[r].Allreduce(make([]byte, 4096), make([]byte, 4096), reduce.F32, reduce.Sum, 0)
	})
	page, err := json.Marshal(g[0].Live())
	require.NoError(t, err)
	require.Less(t, len(page), 16<<10)
}
