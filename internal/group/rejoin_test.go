package group

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestLateRankWhileTheSwitchIsGone: one that posts nothing for longer than MCAST_TIMEOUT,
// while the others lose the switch, join it again and wait for it, fails nothing, whichever it is.
func TestLateRankWhileTheSwitchIsGone(t *testing.T) {
	waits(t)
	const ranks = 4
	for name, late := range map[string]int{"first": 0, "last": ranks - 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := systest.ReservePort(t).String()
			first, err := switchd.Start(switchd.Config{Workers: 1, Bind: address})
			require.NoError(t, err)
			g := world(t, ranks, func(s *config.Settings) {
				via("udp", first)(s)
				s.Timeout, s.SwitchTimeout = short, short
			})
			// More than a late rank's stream takes while nobody reads it: its peers stand at a zero
			// window.
			x := newExercise(seeded(3), ranks, 500_000, reduce.F32, reduce.Sum)
			run := func(meanwhile func()) {
				each(t, ranks, func(r int) error {
					if r == late {
						meanwhile()
					}
					return x.run(g[r], false)
				})
			}
			run(func() {})
			require.Equal(t, "switch", g[0].Info().ReduceScatter)
			run(func() {
				assert.NoError(t, first.Close())
				systest.Pause(short / 4) // the others find that it is gone
				node(t, switchd.Config{Workers: 1, Bind: address})
				systest.Pause(skew)
			})
			until(t, g, "switch")
			for r := range g {
				assert.EqualValues(t, 1, g[r].Stats().Fallbacks, "rank %d", r)
			}
		})
	}
}
