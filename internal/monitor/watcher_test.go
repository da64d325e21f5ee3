package monitor

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// newWatcher watches a group that has only what a watcher needs.
func newWatcher() *watcher {
	return &watcher{
		Monitor: &Monitor{
			plan: &team.Plan{Rank: 3, Size: 4, Column: team.Everyone(3, 4)}, info: Info{Interface: "eth0"},
			log: slog.New(slog.DiscardHandler),
		},
	}
}

func TestMonitorWarnsOnceACause(t *testing.T) {
	quiet := sample{link: netdev.Link{Changes: 2, Mbps: 10000}, mtu: 9000, chunk: 8928, repairsOf: make([]uint64, 4)}
	for want, change := range map[string]func(s *sample){
		"":                                  func(*sample) {},
		"refuses datagrams of ours (EPERM)": func(s *sample) { s.refused++ },
		"eth0 of rank 3 was down":           func(s *sample) { s.offline++ },
		"the MTU of eth0 of rank 3 is 1400 now, too small for chunks of 8928 bytes": func(s *sample) {
			s.tooLarge++
			s.mtu = 1400
		},
		"belong to none of its operations":                        func(s *sample) { s.forged++ },
		"eth0 of rank 3 has lost its link":                        func(s *sample) { s.link.Changes++ },
		"eth0 of rank 3 runs at 1000 Mbit/s now, before at 10000": func(s *sample) { s.link.Mbps = 1000 },
	} {
		t.Run(want, func(t *testing.T) {
			m, s := newWatcher(), quiet
			m.look(s)
			for range 3 {
				change(&s)
				m.look(s)
			}
			if want == "" {
				require.Empty(t, m.warnings.all())
				return
			}
			require.Len(t, m.warnings.all(), 1)
			require.Contains(t, m.warnings.all()[0], want)
		})
	}
}

// TestMonitorWarnsOfLossesThatGoOn has 1000 chunks a second come.
func TestMonitorWarnsOfLossesThatGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		repairs func(second int) uint64 // of the 1000
		root    int                     // that they are of
		want    string
	}{
		"none":           {func(int) uint64 { return 0 }, 1, ""},
		"half a percent": {func(int) uint64 { return 5 }, 1, ""},
		"one bad second": {func(second int) uint64 { return uint64(500 * max(0, 1-(second-3)*(second-3))) }, 1, ""},
		"two percent": {func(int) uint64 { return 20 }, 1,
			"2 % of the chunks of rank 3 have come by repair for 10s, most of them rank 1's: datagrams are lost on the way"},
		"all": {func(int) uint64 { return 1000 }, 2, "100 % of the chunks of rank 3 have come by repair for 10s, most of " +
			"them rank 2's: its multicast does not arrive any more"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newWatcher()
			s := sample{repairsOf: make([]uint64, 4)}
			for second := range 2 * monitorWindow {
				n := c.repairs(second)
				s.repairs, s.chunks = s.repairs+n, s.chunks+1000-n
				s.repairsOf = append([]uint64{}, s.repairsOf...)
				s.repairsOf[c.root] += n
				m.look(s)
				if second < monitorWindow {
					require.Empty(t, m.warnings.all())
				}
			}
			if c.want == "" {
				require.Empty(t, m.warnings.all())
				return
			}
			require.Len(t, m.warnings.all(), 1)
			require.Contains(t, m.warnings.all()[0], c.want)
		})
	}
}

// TestMonitorSaysHowAllgathersTravel: once in the notes, and each time in the log.
func TestMonitorSaysHowAllgathersTravel(t *testing.T) {
	var log bytes.Buffer
	m := newWatcher()
	m.log, m.travels = slog.New(slog.NewTextHandler(&log, nil)),
		fabrics.Travel{By: fabrics.Multicast, Reason: "it reaches every rank"}
	for _, now := range []multicast.Stats{{Unheard: 2, Relaying: 1}, {Unheard: 2, Relaying: 1}, {}, {Relaying: 1}} {
		s := sample{repairsOf: make([]uint64, 4)}
		s.by, s.reason = m.travels.Now(&now)
		m.look(s)
	}
	require.Len(t, m.warnings.all(), 1)
	require.Contains(t, m.warnings.all()[0],
		"rank 3 sends Allgathers and Broadcasts by unicast now: multicast of 2 rank(s) does not arrive here any more")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "by unicast now: multicast of 2 rank(s)")
	require.Contains(t, lines[1], "by multicast now: it reaches every rank")
	require.Contains(t, lines[2], "by unicast now: multicast does not arrive at another rank any more")
}
