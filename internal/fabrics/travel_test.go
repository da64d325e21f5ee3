package fabrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestTravel: all ranks conclude alike from the setting and from who hears whom.
func TestTravel(t *testing.T) {
	all, unheardPairs := &probed{}, &probed{unheardPairs: [][2]int{{0, 1}, {0, 2}}, ranks: testHosts("abc")}
	for _, c := range []struct {
		setting string
		paths   *probed
		by, why string
	}{
		{"auto", all, Multicast, "it reaches every rank"},
		{"auto", unheardPairs, Unicast, "multicast does not pass from host a (10.0.0.1), rank 0"},
		{"require", all, Multicast, "it reaches every rank"},
		{"off", all, Unicast, "MCAST_MULTICAST=off"},
		{"off", unheardPairs, Unicast, "MCAST_MULTICAST=off"},
	} {
		a := &team.Plan{Settings: config.Settings{Multicast: c.setting}}
		g, err := travelOver(a, c.paths)
		require.NoError(t, err)
		require.Equal(t, Travel{c.by, c.why}, g)
	}
	unheardPairs.snooping = "a switch that snoops IGMP needs a querier"
	_, err := travelOver(&team.Plan{Settings: config.Settings{Multicast: "require"}}, unheardPairs)
	var fault *mesh.Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, mesh.Path, fault.Kind)
	require.Equal(t, unheardPairs.unheardPairs[0], [2]int{fault.From, fault.Rank})
	require.Contains(t, fault.Text,
		"MCAST_MULTICAST=require, but multicast does not pass from host a (10.0.0.1), rank 0; a switch that snoops IGMP")
}

// TestTravelNow: what the protocol finds later goes before what was concluded at join.
func TestTravelNow(t *testing.T) {
	joined := map[string]Travel{
		"multicast": {Multicast, "joined"}, "unicast": {Unicast, "joined"}, "memory": {byMemory, "joined"},
	}
	for _, c := range []struct {
		joined  string
		now     multicast.Stats
		by, why string
	}{
		{"multicast", multicast.Stats{}, Multicast, "joined"},
		{"multicast", multicast.Stats{Relaying: 1, Unheard: 3}, Unicast,
			"multicast of 3 rank(s) does not arrive here any more"},
		{"multicast", multicast.Stats{Relaying: 1}, Unicast, "multicast does not arrive at another rank any more"},
		{"unicast", multicast.Stats{Relaying: 1, Unheard: 3}, Unicast, "joined"},
		{"unicast", multicast.Stats{}, Multicast, "it reaches every rank again"},
		{"memory", multicast.Stats{}, byMemory, "joined"},
	} {
		by, why := joined[c.joined].Now(&c.now)
		require.Equal(t, c.by, by)
		require.Equal(t, c.why, why)
	}
}
