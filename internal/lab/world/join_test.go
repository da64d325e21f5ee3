package world

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestDeadWhileJoining kills a rank, by SIGKILL or by a loss of power, at any moment from the rendezvous to the first
// call. Any error of the others names the dead rank, or another rank of its dead host.
func TestDeadWhileJoining(t *testing.T) {
	const ranks = 12
	for name, hosts := range map[string]int{"a host each": 0, "on one host": 1, "on four hosts": 4} {
		step, until, on := 50*time.Microsecond, 2*time.Millisecond, []int(nil)
		if hosts > 0 {
			step, until = 200*time.Microsecond, 4*time.Millisecond // memory is opened after the mesh stands
		}
		for r := 0; hosts > 0 && r < ranks; r++ {
			on = append(on, r%hosts)
		}
		t.Run(name, func(t *testing.T) {
			for _, deed := range []Deed{Kill, Crash} {
				for _, dead := range []int{0, 5, ranks - 1} {
					for at := step; at < until; at += systest.Draw[time.Duration](5, 1) * step {
						dieWhileJoining(t, &Scenario{
							Net:     Config{Ranks: ranks, On: on, MTU: 1500, Queue: 256, Delay: 100 * time.Microsecond},
							Timeout: 2 * time.Second, Fabric: "auto",
							Calls: []Call{{}}, Events: []Event{{Rank: dead, Deed: deed, At: at}},
						})
					}
				}
			}
		})
	}
}

func dieWhileJoining(t *testing.T, s *Scenario) {
	r, e := Play(t, s), s.Events[0]
	dead := []int{e.Rank}
	if e.Deed == Crash {
		dead = s.beside(e.Rank)
	}
	require.NoError(t, r.Err, "%v:\n%s", s, r.Log)
	for rank, err := range r.Joins {
		if slices.Contains(dead, rank) || err == nil {
			continue
		}
		if slices.Contains(dead, 0) && strings.Contains(err.Error(), "no answer from rank 0") {
			continue // a silent one may wait for others as well
		}
		named, ok := group.RankOf(err)
		require.True(t, ok && slices.Contains(dead, named), "%v: rank %d: %v\n%s", s, rank, err, r.Log)
	}
}
