package figures

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for share, want := range map[float64]float64{0: 1, 0.05: 5, 0.5: 50, 0.95: 95, 1: 100} {
		require.Equal(t, want, quantile(hundred, share), share)
	}
	require.Equal(t, 7.0, quantile([]float64{7}, 0.95))
}

// Every noise takes a hundredth of the time of every host, and the same seed draws the same.
func TestPauses(t *testing.T) {
	const hosts, until = 64, 10 * time.Second
	for _, n := range noises {
		total := make([]time.Duration, hosts)
		drawn := n.pauses(hosts, until, 1)
		for _, p := range drawn {
			require.Less(t, p.At, until)
			total[p.Node] += p.For
		}
		for h := range total {
			require.InDelta(t, 0.01, total[h].Seconds()/until.Seconds(), 0.003, "%s, host %d", n.name, h)
		}
		require.Equal(t, drawn, n.pauses(hosts, until, 1))
		require.NotEqual(t, drawn, n.pauses(hosts, until, 2))
	}
}
