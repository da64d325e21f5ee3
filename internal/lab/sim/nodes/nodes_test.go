package nodes

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func size(hosts, perHost, bytes int) Config {
	return Config{
		Hosts: hosts, PerHost: perHost, Bytes: bytes, Gbps: 200, Latency: 500 * time.Nanosecond, Train: 4, Seed: 1,
	}
}

// A host's link passes the bytes of the law, no less, and at most 3 % more, for headers, control messages and
// everything else.
func TestCrosses(t *testing.T) {
	for _, c := range []Config{size(4, 4, 256<<10), size(2, 8, 256<<10), size(3, 2, 256<<10), size(4, 1, 256<<10)} {
		for _, w := range Ways {
			for _, what := range Collectives {
				t.Run(fmt.Sprintf("%dx%d/%s/%s", c.Hosts, c.PerHost, w, what), func(t *testing.T) {
					r, err := c.Run(w, what)
					require.NoError(t, err)
					require.Zero(t, r.Repaired)
					law := w.Crosses(what, c.Hosts, c.PerHost)
					out, in := float64(r.Out)/float64(c.Bytes*law.Out), float64(r.In)/float64(c.Bytes*law.In)
					t.Logf("out %.3f and in %.3f of the law, time %.3f of what is allowed", out, in,
						float64(r.Time)/float64(c.Allowed(w, what)))
					require.GreaterOrEqual(t, min(out, in), 1.0)
					require.LessOrEqual(t, max(out, in), 1.03)
					require.GreaterOrEqual(t, r.Time, c.Allowed(w, what))
				})
			}
		}
	}
}

// At once, rings take as many times as long as ours as the law says, within a tenth for shards of 1 MiB.
func TestSpeedup(t *testing.T) {
	c := size(4, 4, 1<<20)
	rings, err := c.Run(Ring, Both)
	require.NoError(t, err)
	for w, law := range map[Way]float64{Flat: 0.5, Nodes: 1.25, Switch: 2 - 2.0/16} {
		require.InDelta(t, law, w.Speedup(c.Hosts, c.PerHost), 1e-9)
		r, err := c.Run(w, Both)
		require.NoError(t, err)
		require.InEpsilon(t, law, float64(rings.Time)/float64(r.Time), 0.1, w)
	}
}

// The same seed gives the same events.
func TestRepeats(t *testing.T) {
	c := size(3, 2, 64<<10)
	for _, w := range Ways {
		first, err := c.Run(w, Both)
		require.NoError(t, err)
		second, err := c.Run(w, Both)
		require.NoError(t, err)
		require.Equal(t, first, second)
	}
}
