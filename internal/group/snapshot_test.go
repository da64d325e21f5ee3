package group

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestAskedForAll: a rank that publishes answers for all of its group until it closes.
func TestAskedForAll(t *testing.T) {
	const p = 3
	dir := systest.ShortDir(t)
	var g []*Group
	for _, fabric := range []string{"shm", "udp"} {
		g = append(g, world(t, p, func(s *config.Settings) { s.Fabric, s.Metrics = fabric, dir })...)
	}
	pages, errs := live.Read[monitor.Live]([]string{dir})
	require.Empty(t, errs)
	require.Len(t, pages, 1)
	for _, of := range g {
		name := of.plan.Name()
		var said monitor.Asked
		systest.Eventually(t, func() bool { // ranks of a busy machine may answer late
			require.NoError(t, pages[0].Ask(t.Context(), name, nil, &said))
			return len(said.Silent) == 0
		})
		require.Len(t, said.Ranks, p)
		for rank, page := range said.Ranks {
			var snap monitor.Snapshot
			require.NoError(t, json.Unmarshal(page, &snap))
			require.Equal(t, os.Getpid(), snap.PID)
			require.Len(t, snap.Groups, 1)
			require.Equal(t, name, snap.Groups[0].Group)
			require.Equal(t, rank, snap.Groups[0].Info.Rank)
			require.Equal(t, p, snap.Groups[0].Info.Size)
		}
	}
	first := g[0].plan.Name()
	each(t, p, func(r int) error { return g[r].Close() })
	require.ErrorContains(t, pages[0].Ask(t.Context(), first, nil, new(monitor.Asked)), "has ended there")
}
