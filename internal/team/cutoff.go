package team

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Cutoff returns the least time without news after which this rank fetches missing chunks: MCAST_CUTOFF, times the
// ranks of its host for each core that they may use. Where ranks outnumber cores, a rank does not run while others have
// its core, and the chunks that it has not read yet are not lost.
func (a *Plan) Cutoff(cores int) time.Duration {
	ranks := 0
	for r := range a.Hosts {
		if netdev.SameHost(a.Hosts[r].ID, a.Hosts[a.Rank].ID) {
			ranks++
		}
	}
	return a.Settings.Cutoff * time.Duration(1+(ranks-1)/cores) // rounded up
}
