package baseline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// TestAnyNetwork runs everything over networks that drop for want of room, that wait or reorder,
// that have slow or pausing hosts, and that have rails.
func TestAnyNetwork(t *testing.T) {
	for name, change := range map[string]func(*network.Config){
		"drop-tail": func(c *network.Config) { c.Queue = 20 << 10 },
		"lossless":  func(c *network.Config) { c.Queue, c.Lossless = 20<<10, true },
		"adaptive":  func(c *network.Config) { c.Adaptive = true },
		"slow hosts": func(c *network.Config) {
			c.Workers, c.Cost, c.Depth = 2, 400*time.Nanosecond, 16
			c.Faults.Slow = []network.Slow{{Node: 3, Factor: 3}}
			c.Faults.SlowNIC = []network.Slow{{Node: 5, Factor: 2}}
			c.Faults.Pauses = []network.Pause{{Node: 1, At: 20 * time.Microsecond, For: 500 * time.Microsecond}}
		},
		"rails": func(c *network.Config) { c.Tree.Rails = 2 },
	} {
		for _, transport := range []Transport{Reliable, GoBackN, SelectiveRepeat} {
			for _, algorithm := range Algorithms() {
				t.Run(fmt.Sprintf("%s/%s/%s", name, transport, algorithm), func(t *testing.T) {
					c := Config{Net: star(16), Algorithm: algorithm, Transport: transport, Bytes: 200_000, Segment: 30_000, Root: 9}
					c.Net.Tree.Radix, c.Net.Tree.Oversubscription = 8, 3
					change(&c.Net)
					_, err := Run(c)
					require.NoError(t, err)
				})
			}
		}
	}
}

// TestRails: segments are spread over the rails, which halves the time.
func TestRails(t *testing.T) {
	for _, algorithm := range []Algorithm{AllgatherRing, AllgatherLinear, BroadcastChain, RingRing} {
		c := Config{Net: star(8), Algorithm: algorithm, Bytes: 8 << 20, Segment: 16 << 10}
		one, err := Run(c)
		require.NoError(t, err)
		c.Net.Tree.Rails = 2
		two, err := Run(c)
		require.NoError(t, err)
		require.InEpsilon(t, one.Time/2, two.Time, 0.1, "%s: %v and %v", algorithm, one.Time, two.Time)
	}
}

// TestCoalescedAcks: a fourth of the feedback, and none awaited in vain at the end of a message.
func TestCoalescedAcks(t *testing.T) {
	for _, transport := range []Transport{GoBackN, SelectiveRepeat} {
		for _, algorithm := range []Algorithm{BroadcastChain, BroadcastGleam} {
			c := Config{Net: star(2), Algorithm: algorithm, Transport: transport, Bytes: 1<<20 + 1, AckEvery: 4}
			r, err := Run(c)
			require.NoError(t, err)
			require.Zero(t, r.Timeouts, "%s over %s", algorithm, transport)
			ends := map[Algorithm]int64{BroadcastChain: 1, BroadcastGleam: 2}[algorithm] // the switch speaks too
			require.EqualValues(t, ends*(257+3)/4, r.Feedback, "%s over %s", algorithm, transport)
		}
	}
}
