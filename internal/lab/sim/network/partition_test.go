package network

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Partitions hold reliable packets up until they heal.
func TestPartition(t *testing.T) {
	n, all := build(t,
		Config{Tree: two, Faults: Faults{Partitions: []Partition{{Hosts: []int{3, 4}, For: 20 * time.Millisecond}}}})
	send(n, Packet{To: 3, Reliable: true, Tag: 1})
	send(n, Packet{From: 4, To: 9, Reliable: true})
	send(n, Packet{To: 3})
	run(t, n)
	require.Len(t, all[3].got, 1)
	require.Len(t, all[9].got, 1)
	// Sent again after 1, 3, 7, 15 and 31 ms.
	require.InDelta(t, 31*time.Millisecond, all[3].got[0].at, 1e6)
}

// Both sides of a split talk among themselves, and not to each other until it
// heals.
func TestSplit(t *testing.T) {
	inside := []int{0, 1, 9, 31}
	for _, lossless := range []bool{false, true} {
		n, all := build(t, Config{
			Tree: two, Latency: 500, Lossless: lossless, Queue: 8320,
			Faults: Faults{Partitions: []Partition{{Hosts: inside, At: 1000, For: 40_000, Split: true}}},
		})
		side := map[int32]bool{}
		for _, h := range inside {
			side[int32(h)] = true
		}
		all[2].wake = func(tag uint64) {
			for _, from := range []int32{0, 5, 31} {
				send(n, Packet{From: from, To: Multicast, Tag: tag})
			}
			for to := range int32(32) {
				send(n, Packet{From: 0, To: to, Tag: tag})
				send(n, Packet{From: 5, To: to, Tag: tag})
			}
			send(n, Packet{From: 9, To: 5, Tag: tag, Reliable: true})
		}
		n.At(1000, 2, 1)
		n.At(50_000, 2, 2)
		run(t, n)
		for h := range int32(32) {
			count := [3]int{}
			for _, g := range all[h].got {
				require.True(t, g.tag == 2 || g.reliable || side[g.from] == side[h], "from %d to %d", g.from, h)
				count[g.tag]++
			}
			want := [3]int{0, 2, 5} // of 5, by unicast and multicast
			if side[h] {
				want[1] = 3 // of 0 by both, of 31 by multicast
			}
			switch h {
			case 5: // a multicast and a unicast of its own do not cross a link
				want = [3]int{0, 1 + 1, 4 + 1}
			case 0, 31:
				want[1], want[2] = 2, 4
			}
			require.Equal(t, want, count, "host %d", h)
		}
		require.GreaterOrEqual(t, all[5].got[len(all[5].got)-1].at, Time(1e6), "the reliable one, after RTO")
	}
}

// Switches are on the side of the hosts that a split does not name.
func TestSplitSwitches(t *testing.T) {
	n, all := build(t,
		Config{Tree: two, Faults: Faults{Partitions: []Partition{{Hosts: []int{3}, For: time.Second, Split: true}}}})
	root := int32(n.Tree().Root(0))
	send(n, Packet{From: 3, To: root})
	send(n, Packet{From: 4, To: root})
	send(n, Packet{From: root, To: Multicast})
	run(t, n)
	require.Len(t, all[root].got, 1)
	for h := range 32 {
		require.Equal(t, h == 3, len(all[h].got) == 0, "host %d", h)
	}
}
