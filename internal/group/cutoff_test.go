package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

func TestCutoffOfRanksThatShareCores(t *testing.T) {
	hosts := make([]host, 12)
	for r := range hosts {
		hosts[r].id = []string{"eight/", "four/"}[r/8]
	}
	for _, c := range []struct {
		rank, cores int
		want        time.Duration
	}{
		{0, 1, 16 * time.Millisecond}, {7, 2, 8 * time.Millisecond}, {0, 3, 6 * time.Millisecond},
		{0, 8, 2 * time.Millisecond}, {0, 96, 2 * time.Millisecond}, {8, 2, 4 * time.Millisecond},
	} {
		a := agreement{rank: c.rank, hosts: hosts, settings: config.Settings{Cutoff: 2 * time.Millisecond}}
		assert.Equal(t, c.want, a.cutoff(c.cores), "rank %d, %d cores", c.rank, c.cores)
	}
}
