package group

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConclude(t *testing.T) {
	const full = 9000
	for name, c := range map[string]struct {
		records []probeRecord
		want    probed
		notes   string
	}{
		"all is well": {make([]probeRecord, 3), probed{full: full, packet: full}, ""},
		"one direction is narrow": {
			[]probeRecord{{}, {Multicast: [][2]int{{2, 1500}}}, {}},
			probed{full: full, packet: 1500, from: 2, to: 1}, "",
		},
		"the narrowest counts, by unicast too": {
			[]probeRecord{{Unicast: [][2]int{{1, 1400}}}, {Multicast: [][2]int{{2, 1500}}}, {}},
			probed{full: full, packet: 1400, from: 1, to: 0}, "",
		},
		"no multicast from one root": {
			[]probeRecord{{Multicast: [][2]int{{1, 0}}}, {}, {Multicast: [][2]int{{1, 0}}}},
			probed{full: full, packet: full, deaf: [][2]int{{1, 0}, {1, 2}}},
			"multicast does not pass from rank 1 to ranks 0 and 2: ",
		},
		"no datagrams at all say nothing about size": {
			[]probeRecord{{Multicast: [][2]int{{1, 0}}, Unicast: [][2]int{{1, 0}}}, {Error: "operation not permitted"}},
			probed{full: full, packet: full, deaf: [][2]int{{1, 0}}, mute: []string{"rank 1: operation not permitted"}},
			"as fast as a ring; rank 1: operation not permitted",
		},
		"small multicast says nothing about size": {
			[]probeRecord{{Multicast: [][2]int{{1, 128}}}, {Error: "operation not permitted"}},
			probed{full: full, packet: full, deaf: [][2]int{{1, 0}}, mute: []string{"rank 1: operation not permitted"}},
			"as fast as a ring; rank 1: operation not permitted",
		},
		"small unicast does": {
			[]probeRecord{{Multicast: [][2]int{{1, 128}}, Unicast: [][2]int{{1, 128}}}, {}},
			probed{full: full, packet: 128, from: 1, to: 0, deaf: [][2]int{{1, 0}}},
			"multicast does not pass from rank 1 to rank 0: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := conclude(c.records, full)
			require.Equal(t, c.want, got)
			if c.notes == "" {
				require.Empty(t, got.warnings())
			} else {
				require.Len(t, got.warnings(), 1)
				require.Contains(t, got.warnings()[0].text, c.notes)
			}
		})
	}
}

func TestRankLists(t *testing.T) {
	require.Equal(t, "rank 3", rankList([]int{3}))
	require.Equal(t, "ranks 1, 2 and 5", rankList([]int{1, 2, 5}))
	require.Equal(t, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more", rankList([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
	pairs := [][2]int{{0, 1}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 1}}
	require.Equal(t, "from rank 0 to rank 1, from rank 1 to rank 0, from rank 2 to rank 0, from rank 3 to rank 0, from 1 more", deafText(pairs))
}
