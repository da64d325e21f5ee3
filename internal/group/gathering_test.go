package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestGathering: all ranks conclude alike from the setting and from who hears whom.
func TestGathering(t *testing.T) {
	all, deaf := &probed{}, &probed{deaf: [][2]int{{0, 1}, {0, 2}}, ranks: testHosts("abc")}
	for _, c := range []struct {
		setting string
		paths   *probed
		by, why string
	}{
		{"auto", all, byMulticast, "it reaches every rank"},
		{"auto", deaf, byUnicast, "multicast does not pass from host a (10.0.0.1), rank 0"},
		{"require", all, byMulticast, "it reaches every rank"},
		{"off", all, byUnicast, "MCAST_MULTICAST=off"},
		{"off", deaf, byUnicast, "MCAST_MULTICAST=off"},
	} {
		a := &team.Plan{Settings: config.Settings{Multicast: c.setting}}
		g, err := gatheringOver(a, c.paths)
		require.NoError(t, err)
		require.Equal(t, gathering{c.by, c.why}, g)
	}
	deaf.snooping = "a switch that snoops IGMP needs a querier"
	_, err := gatheringOver(&team.Plan{Settings: config.Settings{Multicast: "require"}}, deaf)
	var fault *Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, Path, fault.Kind)
	require.Equal(t, deaf.deaf[0], [2]int{fault.From, fault.Rank})
	require.Contains(t, fault.Text, "MCAST_MULTICAST=require, but multicast does not pass from host a (10.0.0.1), rank 0; a switch that snoops IGMP")
}

// TestGatheringNow: what the protocol finds later goes before what was concluded at join.
func TestGatheringNow(t *testing.T) {
	joined := map[string]gathering{
		"multicast": {byMulticast, "joined"}, "unicast": {byUnicast, "joined"}, "memory": {byMemory, "joined"},
	}
	for _, c := range []struct {
		joined  string
		now     multicast.Stats
		by, why string
	}{
		{"multicast", multicast.Stats{}, byMulticast, "joined"},
		{"multicast", multicast.Stats{Relaying: 1, Unheard: 3}, byUnicast, "multicast of 3 rank(s) does not arrive here any more"},
		{"multicast", multicast.Stats{Relaying: 1}, byUnicast, "multicast does not arrive at another rank any more"},
		{"unicast", multicast.Stats{Relaying: 1, Unheard: 3}, byUnicast, "joined"},
		{"unicast", multicast.Stats{}, byMulticast, "it reaches every rank again"},
		{"memory", multicast.Stats{}, byMemory, "joined"},
	} {
		by, why := joined[c.joined].now(&c.now)
		require.Equal(t, c.by, by)
		require.Equal(t, c.why, why)
	}
}

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
		require.Equal(t, byUnicast, m.Info().Allgather)
		require.Empty(t, m.Info().Notes)
		s := m.Stats()
		require.Zero(t, s.GatherSentBytes)
		require.NotZero(t, s.ChunksRelayed)
	}
}
