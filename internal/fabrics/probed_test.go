package fabrics

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
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
			probed{full: full, packet: full, unheardPairs: [][2]int{{1, 0}, {1, 2}}},
			"multicast does not pass from host b (10.0.0.2), rank 1: ",
		},
		"no datagrams at all say nothing about size": {
			[]probeRecord{{Multicast: [][2]int{{1, 0}}, Unicast: [][2]int{{1, 0}}}, {Error: "operation not permitted"}},
			probed{
				full: full, packet: full, unheardPairs: [][2]int{{1, 0}}, cannotSend: []string{"rank 1: operation not permitted"},
			},
			"as fast as a ring; rank 1: operation not permitted",
		},
		"small multicast says nothing about size": {
			[]probeRecord{{Multicast: [][2]int{{1, 128}}}, {Error: "operation not permitted"}},
			probed{
				full: full, packet: full, unheardPairs: [][2]int{{1, 0}}, cannotSend: []string{"rank 1: operation not permitted"},
			},
			"as fast as a ring; rank 1: operation not permitted",
		},
		"small unicast does": {
			[]probeRecord{{Multicast: [][2]int{{1, 128}}, Unicast: [][2]int{{1, 128}}}, {}},
			probed{full: full, packet: 128, from: 1, to: 0, unheardPairs: [][2]int{{1, 0}}},
			"multicast does not pass from rank 1 on b (10.0.0.2) to rank 0 on a (10.0.0.1): ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := conclude(c.records, full)
			require.Equal(t, c.want, got)
			got.ranks = testHosts("abc")
			if c.notes == "" {
				require.Empty(t, got.warnings())
			} else {
				require.Len(t, got.warnings(), 1)
				require.Contains(t, got.warnings()[0].Text, c.notes)
			}
		})
	}
}

// testHosts are ranks on hosts of one letter each.
func testHosts(letters string) (ranks []team.Host) {
	for _, l := range letters {
		name := string(l)
		ranks = append(ranks,
			team.Host{ID: "boot-" + name + "/1/", Name: name, Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(l-'a') + 1})})
	}
	return ranks
}

// TestUnheard: a problem of a host is reported for the host, once.
func TestUnheard(t *testing.T) {
	between := func(from, to []int) (pairs [][2]int) {
		for _, f := range from {
			for _, t := range to {
				if f != t {
					pairs = append(pairs, [2]int{f, t})
				}
			}
		}
		return pairs
	}
	for _, c := range []struct {
		ranks, want string
		pairs       [][2]int
	}{
		{"abcd", "to host d (10.0.0.4), rank 3", between([]int{0, 1, 2}, []int{3})},
		{"aabbcc", "to host b (10.0.0.2), ranks 2 and 3", between([]int{0, 1, 4, 5}, []int{2, 3})},
		{"aabbcc", "from rank 0 on a (10.0.0.1) to rank 2 on b (10.0.0.2)", [][2]int{{0, 2}}},
		{"abcd", "from host a (10.0.0.1), rank 0", between([]int{0}, []int{1, 2, 3})},
		{
			"abcd", "to host d (10.0.0.4), rank 3, from host d (10.0.0.4), rank 3",
			append(between([]int{0, 1, 2}, []int{3}), between([]int{3}, []int{0, 1, 2})...),
		},
		{"abcd", "between any two of the 4 hosts", between([]int{0, 1, 2, 3}, []int{0, 1, 2, 3})},
		{"ab", "from rank 0 on a (10.0.0.1) to rank 1 on b (10.0.0.2)", [][2]int{{0, 1}}},
		{"abcd", "from rank 1 on b (10.0.0.2) to ranks 2 and 3", [][2]int{{1, 2}, {1, 3}}},
		{
			"abcd", "to host d (10.0.0.4), rank 3, from rank 0 on a (10.0.0.1) to rank 1 on b (10.0.0.2)",
			append(between([]int{0, 1, 2}, []int{3}), [2]int{0, 1}),
		},
		{
			"aaaaaabc",
			"from rank 0 on a (10.0.0.1) to rank 1 on a (10.0.0.1), from rank 1 on a (10.0.0.1) to rank 2 on a (10.0.0.1), " +
				"from rank 2 on a (10.0.0.1) to rank 3 on a (10.0.0.1), from rank 3 on a (10.0.0.1) to rank 4 on a (10.0.0.1), " +
				"from 1 more",
			[][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}},
		},
	} {
		require.Equal(t, "multicast does not pass "+c.want, unheardText(c.pairs, testHosts(c.ranks)))
	}
}

// TestLosses: of two trains of 16 that rank 1 sent, 28 small probes have come.
func TestLosses(t *testing.T) {
	b := pathProbe{rank: 0, size: 3, trains: []int{1, 2, 1}, largest: []udp.Heard{{}, {Small: 28}, {Small: 16}}}
	require.Equal(t, 16, b.train())
	require.Equal(t, []float64{0, 0.125, 0}, b.losses())
	b.size = 1000
	require.Equal(t, 1, b.train())
}
