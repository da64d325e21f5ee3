package reduction

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

// cut is a Reduce-Scatter alone as NCCL hands it over: windows in the order of owners, each owner with a track.
func cut(hosts, windows, inFlight int) Config {
	c := on(hosts, 0)
	c.Bytes, c.Chunk, c.Windows, c.InFlight, c.Tracks = 4<<20, 8<<10, windows, inFlight, innetwork.TracksFor(hosts)
	c.Slots = 64
	return c
}

// shards returns how long it took, in units of what a shard takes on a link.
func shards(t *testing.T, c Config) float64 {
	t.Helper()
	r := run(t, c)
	return float64(r.Time) * c.Net.Gbps / 8 / float64(c.Bytes)
}

// With windows of all owners in flight each rank has one shard less to send, and its link no pause. With fewer, a rank
// has to send for all owners while its own result is not under way.
func TestTracksOfAllOwners(t *testing.T) {
	for name, c := range map[string]struct {
		hosts, windows, inFlight int
		least, most              float64
	}{
		"2 hosts, all":       {2, 4, 8, 1, 1.06 * 1},
		"4 hosts, all":       {4, 2, 8, 3, 1.05 * 3},
		"8 hosts, all":       {8, 1, 8, 7, 1.05 * 7},
		"4 hosts, 8 of 16":   {4, 4, 8, 3, 4.15},
		"4 hosts, 8 of 64":   {4, 16, 8, 3.9, 4.15},
		"8 hosts, 8 of 64":   {8, 8, 8, 7.8, 8.3},
		"16 hosts, no track": {16, 2, 32, 15, 16.6},
	} {
		t.Run(name, func(t *testing.T) {
			took := shards(t, cut(c.hosts, c.windows, c.inFlight))
			t.Logf("%.3f shards", took)
			require.GreaterOrEqual(t, took, c.least)
			require.LessOrEqual(t, took, c.most)
		})
	}
}

// One track serves owner after owner, with any windows in flight.
func TestOneTrackServesOwnerAfterOwner(t *testing.T) {
	c := cut(4, 2, 8)
	c.Tracks, c.Stripes = 1, 4
	require.Greater(t, shards(t, c), 3.9)
}

// Ranks that post when they like, and networks that lose and double, change no byte. (internal/lab/sim/incnet has
// all types and operations, small windows of slots and switches that are lost.)
func TestTracksUnderFaults(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"late ranks": func(*Config) {},
		"loss":       func(c *Config) { c.Net.Faults = network.Faults{LinkLoss: 0.01} },
		"all": func(c *Config) {
			c.Net.Faults = network.Faults{LinkLoss: 0.01, Duplicate: 0.1, Jitter: 20 * time.Microsecond}
		},
		"tree of switches": func(c *Config) {
			c.Net.Tree = fattree.Config{Hosts: 8, Radix: 4}
			c.Net.Faults = network.Faults{LinkLoss: 0.01, Duplicate: 0.01}
		},
	} {
		for _, typ := range []string{"f32", "f64", "i32", "bf16"} {
			t.Run(name+"/"+typ, func(t *testing.T) {
				t.Parallel()
				c := cut(4, 16, 8)
				c.Bytes, c.Type, c.Skew = 512<<10, typ, 10*time.Millisecond
				change(&c)
				c.Tracks, c.Stripes = innetwork.TracksFor(c.Net.Tree.Hosts), 0
				r := run(t, c)
				require.Equal(t, name == "late ranks", r.Resent == 0, "contributions sent again")
			})
		}
	}
}
