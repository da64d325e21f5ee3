package udp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestEthernet has four ranks on two hosts, as it were, with every step of offload.
func TestEthernet(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		ns := systest.Cable(t, mtu)
		for _, offload := range offloads {
			t.Run(fmt.Sprintf("%d/%v", mtu, offload), func(t *testing.T) {
				ranks := groupOn(t, ns, func(o *Options) { o.Offload, o.RcvBuf = offload, 212992 })
				chunk := ranks[0].Traits().Chunk
				require.Equal(t, (mtu-60)/32*32, chunk)
				for _, shard := range []int{100, chunk, 300*chunk + 11} {
					exchange(t, ranks, shard)
				}
				for _, g := range ranks {
					require.Zero(t, g.Stats().Dropped)
				}
				if offload == batch.OffloadAuto {
					perCall := float64(ranks[0].Stats().ReceivedChunks) / float64(ranks[0].Stats().Syscalls)
					require.Greater(t, perCall, 2.0, "datagrams come many at a time")
				}
			})
		}
	}
}

// groupOn opens ranks 0 and 1 in the first and 2 and 3 in the second
// namespace. Their control connections need no network.
func groupOn(t *testing.T, ns [2]*systest.Namespace, adjust func(o *Options)) []*Gather {
	t.Helper()
	conns := systest.Mesh(t, 4)
	addr, port := freshGroup()
	job := rand.Uint64()
	ranks := make([]*Gather, 4)
	var sources []netip.Addr
	for r := range ranks {
		sources = append(sources, netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", r/2+1)))
	}
	for r := range ranks {
		ns[r/2].Do(func() {
			o := Options{Rank: r, Size: 4, Job: job, Group: addr, Port: port, TTL: 1, Sources: sources, Conns: conns[r]}
			var err error
			o.Interface, _, err = Choose("", []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", 2-r/2))})
			if err == nil {
				adjust(&o)
				ranks[r], err = Open(o)
			}
			if err != nil {
				t.Error(err)
			}
		})
		require.NotNil(t, ranks[r])
		t.Cleanup(func() { require.NoError(t, ranks[r].Close()) })
	}
	return ranks
}

// TestWindowHoldsOnEthernet sends a full window to receivers that do not read.
func TestWindowHoldsOnEthernet(t *testing.T) {
	ns := systest.Cable(t, 1500)
	for _, offload := range offloads {
		t.Run(offload.String(), func(t *testing.T) {
			ranks := groupOn(t, ns, func(o *Options) { o.Offload, o.RcvBuf, o.Window = offload, 212992, 1<<30 })
			traits := ranks[0].Traits()
			shard := make([]byte, traits.Window*traits.Chunk)
			fill(shard, 0, 1)
			require.Equal(t, traits.Window, ranks[0].Multicast(run(0, 1, shard, 0, traits.Window)))
			for r := 1; r < 4; r++ {
				s := newSink(r, 4, traits.Chunk, len(shard))
				pollUntil(t, ranks[r], s, func() bool { return int(s.next[0]) == traits.Window })
				require.Equal(t, shard, s.of(0))
			}
		})
	}
}

func TestChoose(t *testing.T) {
	n := systest.NewNamespace(t)
	n.IP(t, "link set lo up")
	n.IP(t, "link add good type veth peer name good9")
	n.IP(t, "addr add 10.1.0.1/24 dev good")
	n.IP(t, "link set good up multicast on")
	n.IP(t, "link add other type veth peer name other9")
	n.IP(t, "addr add 10.2.0.1/24 dev other")
	n.IP(t, "link set other up multicast on")
	n.IP(t, "link add idle type veth peer name idle9")
	n.IP(t, "link add mute type veth peer name mute9")
	n.IP(t, "addr add 10.3.0.1/24 dev mute")
	n.IP(t, "link set mute up multicast off")
	n.IP(t, "link add bare type veth peer name bare9")
	n.IP(t, "link set bare up multicast on")
	addrs := func(texts ...string) (addrs []netip.Addr) {
		for _, text := range texts {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		return addrs
	}
	for _, c := range []struct {
		name  string
		peers []netip.Addr
		want  string // interface and address
		err   string
	}{
		{"good", nil, "good 10.1.0.1", ""},
		{"", nil, "lo 127.0.0.1", ""},
		{"", addrs("127.0.0.1", "10.1.0.1", "::ffff:10.2.0.1"), "lo 127.0.0.1", ""},
		{"", addrs("127.0.0.1", "10.2.0.9"), "other 10.2.0.1", ""},
		{"nope", nil, "", "there is no interface nope (have [bare bare9 good good9 idle idle9 lo mute mute9 other other9])"},
		{"idle", nil, "", "interface idle is down (ip link set idle up)"},
		{"mute", nil, "", "interface mute does not do multicast (ip link set mute multicast on)"},
		{"bare", nil, "", "interface bare has no IPv4 address"},
		{"", addrs("192.0.2.7"), "", "no route to 192.0.2.7: "},
		{"", addrs("10.1.0.2", "10.2.0.2"), "", "10.1.0.2 is reached by good and 10.2.0.2 by other: name one interface for all ranks (MCAST_IFACE)"},
	} {
		n.Do(func() {
			ifi, addr, err := Choose(c.name, c.peers)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), fabric.ErrUnavailable.Error()) {
					t.Errorf("Choose(%q, %v): %v, want %q", c.name, c.peers, err, c.err)
				}
				return
			}
			if err != nil || fmt.Sprint(ifi.Name, " ", addr) != c.want {
				t.Errorf("Choose(%q, %v): %v, %v, %v, want %q", c.name, c.peers, ifi, addr, err, c.want)
			}
		})
	}
}

// TestNeedsNoMulticastRoute has a routing table that forbids multicast: the
// interface was chosen, so the table is not asked.
func TestNeedsNoMulticastRoute(t *testing.T) {
	ns := systest.Cable(t, 1500)
	for _, n := range ns {
		n.IP(t, "route add prohibit 224.0.0.0/4")
	}
	exchange(t, groupOn(t, ns, func(*Options) {}), 100000)
}

func TestInterfaceThatWentDown(t *testing.T) {
	n := systest.NewNamespace(t) // Its lo is down, unlike this namespace's.
	var err error
	n.Do(func() {
		addr, port := freshGroup()
		_, err = Open(Options{Rank: 0, Size: 1, Group: addr, Port: port, Interface: &net.Interface{Index: 1, Name: "lo", MTU: 65536}})
	})
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err, "through lo")
	require.ErrorIs(t, err, unix.ENETUNREACH)
}
