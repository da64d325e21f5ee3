package team

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

func TestCutoffOfRanksThatShareCores(t *testing.T) {
	hosts := make([]Host, 12)
	for r := range hosts {
		hosts[r].ID = []string{"eight/", "four/"}[r/8]
	}
	for _, c := range []struct {
		rank, cores int
		want        time.Duration
	}{
		{0, 1, 16 * time.Millisecond}, {7, 2, 8 * time.Millisecond}, {0, 3, 6 * time.Millisecond},
		{0, 8, 2 * time.Millisecond}, {0, 96, 2 * time.Millisecond}, {8, 2, 4 * time.Millisecond},
	} {
		a := Plan{Rank: c.rank, Hosts: hosts, Settings: config.Settings{Cutoff: 2 * time.Millisecond}}
		assert.Equal(t, c.want, a.Cutoff(c.cores), "rank %d, %d cores", c.rank, c.cores)
	}
}
