package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
)

// TestUnicast: with MCAST_MULTICAST=off nothing is multicast, and info says so.
func TestUnicast(t *testing.T) {
	g := world(t, 3, func(s *config.Settings) { s.Fabric, s.Multicast = "udp", "off" })
	const n = 300_000
	each(t, 3, func(r int) error {
		own, all := make([]byte, n), make([]byte, 3*n)
		fill(own, r)
		return g[r].Allgather(own, all)
	})
	for _, m := range g {
		require.False(t, m.Multicast())
		require.Equal(t, fabrics.Unicast, m.Info().Allgather)
		require.Empty(t, m.Info().Notes)
		s := m.Stats()
		require.Zero(t, s.GatherSentBytes)
		require.NotZero(t, s.ChunksRelayed)
	}
}
