package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestEthernet has four ranks on two hosts, as it were, with every step of offload.
func TestEthernet(t *testing.T) {
	for _, c := range []struct {
		f   *batch.Family
		mtu int
	}{{batch.IPv4, 1500}, {batch.IPv4, 9000}, {batch.IPv6, 1500}} {
		ns := systest.Cable(t, c.mtu)
		for _, offload := range offloads {
			t.Run(fmt.Sprintf("%s/%d/%v", c.f.Name, c.mtu, offload), func(t *testing.T) {
				ranks := groupOn(t, ns, c.f, func(o *Options) { o.Offload, o.RcvBuf = offload, 212992 })
				chunk := ranks[0].Traits().Chunk
				require.Equal(t, (c.mtu-wire.DataSize-c.f.Headers)/32*32, chunk)
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
func groupOn(t *testing.T, ns [2]*systest.Namespace, f *batch.Family, adjust func(o *Options)) []*Gather {
	t.Helper()
	conns := systest.Mesh(t, 4)
	addr, port := freshGroup(f)
	job := rand.Uint64()
	ranks := make([]*Gather, 4)
	var sources []netip.Addr
	for r := range ranks {
		sources = append(sources, cabled(f, r/2))
	}
	for r := range ranks {
		ns[r/2].Do(func() {
			o := Options{Rank: r, Size: 4, Job: job, Group: addr, Port: port, TTL: 1, Sources: sources, Conns: conns[r]}
			var err error
			o.Interface, err = Choose("", []netip.Addr{cabled(f, 1-r/2)})
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

// cabled is the address of a host of systest.Cable.
func cabled(f *batch.Family, host int) netip.Addr {
	if f == batch.IPv4 {
		return netip.AddrFrom4([4]byte{10, 9, 0, byte(host + 1)})
	}
	return netip.AddrFrom16([16]byte{0xfd, 0x09, 15: byte(host + 1)})
}

// TestWindowHoldsOnEthernet sends a full window to receivers that do not read.
func TestWindowHoldsOnEthernet(t *testing.T) {
	ns := systest.Cable(t, 1500)
	for i, offload := range slices.Concat(offloads, offloads) {
		f := families[i/len(offloads)]
		t.Run(fmt.Sprintf("%s/%v", f.Name, offload), func(t *testing.T) {
			ranks := groupOn(t, ns, f, func(o *Options) { o.Offload, o.RcvBuf, o.Window = offload, 212992, 1<<30 })
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
	n.IP(t, "link set bare up multicast on addrgenmode none")
	n.IP(t, "link add six type veth peer name six9")
	n.IP(t, "link set six up multicast on")
	n.IP(t, "link set six9 up")
	n.IP(t, "addr add fd06::1/64 dev six nodad")
	n.IP(t, "addr add fe80::6/64 dev six nodad")
	// Addresses that no network has, as where routing to the host is done, and a rule that goes by the source.
	n.IP(t, "addr add 10.7.0.1/32 dev lo")
	n.IP(t, "link set bare9 up")
	n.IP(t, "route add 10.9.0.0/24 dev bare src 10.7.0.1")
	n.IP(t, "route add 10.66.0.0/24 dev good")
	n.IP(t, "route add 10.66.0.0/24 dev other table 9")
	n.IP(t, "rule add from 10.1.0.1 lookup 9")
	addrs := func(texts ...string) (addrs []netip.Addr) {
		for _, text := range texts {
			addrs = append(addrs, netip.MustParseAddr(text))
		}
		return addrs
	}
	for _, c := range []struct {
		name  string
		peers []netip.Addr
		want  string
		err   string
	}{
		{"good", nil, "good", ""},
		{"", nil, "lo", ""},
		{"", addrs("127.0.0.1", "10.1.0.1", "::ffff:10.2.0.1"), "lo", ""},
		{"", addrs("127.0.0.1", "10.2.0.9"), "other", ""},
		{"nope", nil, "",
			"there is no interface nope (have [bare bare9 good good9 idle idle9 lo mute mute9 other other9 six six9])"},
		{"idle", nil, "", "interface idle is down (ip link set idle up)"},
		{"mute", nil, "mute", ""},
		{"bare", nil, "", "interface bare has no address"},
		{"lo", addrs("10.7.0.1", "10.1.0.2"), "good", ""},
		{"lo", addrs("10.7.0.1", "10.1.0.1"), "lo", ""},
		{"", addrs("10.7.0.1", "10.9.0.2"), "bare", ""},
		{"", addrs("10.1.0.1", "10.66.0.2"), "other", ""},
		{"good", addrs("fd06::2"), "", "interface good has no IPv6 address"},
		{"six", addrs("10.1.0.2"), "", "interface six has no IPv4 address"},
		{"six", nil, "six", ""},
		{"", addrs("::1", "fd06::1"), "lo", ""},
		{"", addrs("fd06::1", "fd06::2"), "six", ""},
		{"", addrs("fe80::6%six", "fe80::2%six"), "six", ""},
		{"", addrs("192.0.2.7"), "", "no route to 192.0.2.7: "},
		{"", addrs("10.1.0.2", "10.2.0.2"), "",
			"10.1.0.2 is reached by good and 10.2.0.2 by other: name one interface for all ranks (MCAST_IFACE)"},
	} {
		n.Do(func() {
			ifi, err := Choose(c.name, c.peers)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !errors.Is(err, fabric.ErrUnavailable) {
					t.Errorf("Choose(%q, %v): %v, want %q", c.name, c.peers, err, c.err)
				}
				return
			}
			if err != nil || ifi.Name != c.want {
				t.Errorf("Choose(%q, %v): %v, %v, want %q", c.name, c.peers, ifi, err, c.want)
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
		n.IP(t, "-6 route add prohibit ff00::/8")
	}
	for _, f := range families {
		exchange(t, groupOn(t, ns, f, func(*Options) {}), 100000)
	}
}

func TestInterfaceThatWentDown(t *testing.T) {
	n := systest.NewNamespace(t) // Its lo is down, unlike this namespace's.
	var err error
	n.Do(func() {
		addr, port := freshGroup(batch.IPv4)
		_, err = Open(Options{
			Rank: 0, Size: 1, Group: addr, Port: port,
			Interface: &net.Interface{Index: 1, Name: "lo", MTU: 65536, Flags: net.FlagLoopback},
		})
	})
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err, "through lo")
	require.ErrorIs(t, err, unix.ENETUNREACH)
}

// TestMulticastIsMarked: every datagram has the class that the options say, on the wire.
func TestMulticastIsMarked(t *testing.T) {
	ns := systest.Cable(t, 1500)
	for _, f := range []*batch.Family{batch.IPv4, batch.IPv6} {
		t.Run(f.Name, func(t *testing.T) {
			var wire int
			var err error
			ns[1].Do(func() {
				all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
				wire, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, unix.Close(wire)) }()
			ranks := groupOn(t, ns, f, func(o *Options) { o.DSCP = 8 + 38*(o.Rank/2) })
			exchange(t, ranks, 10_000)
			seen := map[int]int{}
			for b := make([]byte, 70_000); ; {
				n, _, err := unix.Recvfrom(wire, b, 0)
				if err != nil {
					require.ErrorIs(t, err, unix.EAGAIN)
					break
				}
				if f == batch.IPv4 && b[0]>>4 == 4 && b[9] == unix.IPPROTO_UDP && n > 500 {
					seen[int(b[1]>>2)]++
				}
				if f == batch.IPv6 && b[0]>>4 == 6 && b[6] == unix.IPPROTO_UDP && n > 500 {
					seen[int(binary.BigEndian.Uint16(b)>>4&0xff)>>2]++
				}
			}
			require.Len(t, seen, 2, "%v", seen)
			require.Positive(t, seen[8], "from the one host")
			require.Positive(t, seen[46], "from the other")
		})
	}
}
