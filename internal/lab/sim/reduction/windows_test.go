package reduction

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const shardBytes = 8 << 20

// windows runs an Allgather and a Reduce-Scatter at once, cut as NCCL does; one of them begins
// later. It returns when each was done, in units of the time that a shard takes on a link.
func windows(t *testing.T, gbps float64, hosts, each int, late Time, strangers bool) (gather, reduce float64) {
	t.Helper()
	w := InWindows{Config: on(hosts, 0), Late: late, Strangers: strangers}
	w.Net.Gbps = gbps
	w.Bytes, w.Chunk, w.Windows = shardBytes, 8<<10, each
	r, err := w.Run()
	require.NoError(t, err)
	shard := float64(w.Bytes) * 8 / gbps
	return float64(r.Allgather) / shard, float64(r.Reduction) / shard
}

// Windows of one rank at a time run in step, even if one of the two operations begins later: from
// then on each loads the links that the other leaves idle, and both take P shards on a link. Only
// the time until the later one has caught up is lost.
func TestWindowsRunInStep(t *testing.T) {
	const hosts = 4
	for name, c := range map[string]struct {
		gbps       float64
		late       float64 // in shards
		gatherLate bool
		most       float64
	}{
		"Reduce-Scatter behind":     {100, 0.3, false, hosts + 0.3},
		"Allgather behind":          {100, 0.3, true, hosts + 0.3},
		"Reduce-Scatter far behind": {100, 1.2, false, hosts + 1.2 + 1},
		"Allgather far behind":      {100, 1.2, true, hosts + 1.2 + 1.5},
		// A slot takes longer than anybody may be kept from sending anything.
		"Reduce-Scatter far behind, slow": {0.2, 1.2, false, hosts + 1.2 + 1},
		"Allgather far behind, slow":      {0.2, 1.2, true, hosts + 1.2 + 1.5},
	} {
		t.Run(name, func(t *testing.T) {
			late := Time(c.late * shardBytes * 8 / c.gbps)
			if c.gatherLate {
				late = -late
			}
			gather, reduce := windows(t, c.gbps, hosts, 16, late, false)
			const gaps = 0.6 // between windows, and where the next owner's track begins early
			require.LessOrEqual(t, max(gather, reduce), c.most+gaps)
			t.Logf("Allgather %.2f, Reduce-Scatter %.2f shards", gather, reduce)
		})
	}
}

// Owners take turns where windows of some of them are in flight, though each has a track of its own:
// else two of them share the links, and the Reduce-Scatter is in step with no slot of the Allgather
// (5.1, 5.0 and 4.6 shards).
func TestOwnersTakeTurns(t *testing.T) {
	const hosts = 4
	for each, most := range map[int]float64{4: 4.6, 8: 4.4, 16: 4.4} { // 8 are in flight
		gather, reduce := windows(t, 100, hosts, each, 0, false)
		t.Logf("%d windows a rank: Allgather %.2f, Reduce-Scatter %.2f shards", each, gather, reduce)
		require.LessOrEqual(t, max(gather, reduce), most, "%d windows a rank", each)
	}
}

// Without word of each other the Allgather, which the model lets go first, runs away from a
// Reduce-Scatter that is behind.
func TestWindowsOutOfStep(t *testing.T) {
	gather, reduce := windows(t, 100, 4, 16, 3*shardBytes*8/1000, true)
	require.Greater(t, max(gather, reduce), 5.0)
}

// Where windows of all ranks are in flight each of the two loads all links alike, and the order on
// the sending link gives each its part: P shards on a link.
func TestWindowsTogether(t *testing.T) {
	for _, hosts := range []int{2, 4, 8} {
		gather, reduce := windows(t, 100, hosts, 8/hosts, 0, false)
		require.Less(t, max(gather, reduce), 1.04*float64(hosts))
		t.Logf("%d hosts: Allgather %.2f, Reduce-Scatter %.2f shards", hosts, gather, reduce)
	}
}
