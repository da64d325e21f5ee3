package world

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// TestDeadWhileJoining kills a rank, by SIGKILL or by a loss of power, at any moment from the
// rendezvous to the first call: whatever the others run into, they name the one that is dead.
func TestDeadWhileJoining(t *testing.T) {
	const hosts, step = 12, 50 * time.Microsecond
	for _, deed := range []Deed{Kill, Crash} {
		for _, dead := range []int{0, 5, hosts - 1} {
			for at := step; at < 40*step; at += step {
				s := Scenario{
					Net: Config{Ranks: hosts, MTU: 1500, Queue: 256, Delay: 100 * time.Microsecond}, Timeout: 2 * time.Second,
					Calls: []Call{{}}, Events: []Event{{Rank: dead, Deed: deed, At: at}},
				}
				r := Play(t, &s)
				if !assert.NoError(t, r.Err, "rank %d, %v at %v:\n%s", dead, deed, at, r.Log) {
					return
				}
				for rank, err := range r.Joins {
					if rank == dead || err == nil {
						continue
					}
					named, ok := group.RankOf(err)
					if dead == 0 && strings.Contains(err.Error(), "no answer from rank 0") {
						continue // a silent one may wait for others as well
					}
					if !assert.True(t, ok && named == dead, "rank %d, %v at %v: rank %d: %v\n%s", dead, deed, at, rank, err, r.Log) {
						return
					}
				}
			}
		}
	}
}
