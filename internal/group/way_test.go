package group

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestWays: each rank's line has its addresses, the first of the default route, with their speeds. What
// is wanted are the last bytes of the addresses by each way.
func TestWays(t *testing.T) {
	for name, c := range map[string]struct {
		hosts string
		ranks []string
		want  string
	}{
		"one network": {"ab", []string{"10.0.0.1/24 0", "10.0.0.2/24 0"}, "1 2"},
		"routed":      {"ab", []string{"10.1.0.1/24 0", "10.2.0.2/24 0"}, "1 2"},
		"the same address behind a virtual machine's NAT": {
			"ab", []string{"10.0.2.15/24 0,192.168.56.11/24 0", "10.0.2.15/24 0,192.168.56.12/24 0"}, "11 12",
		},
		"bridges of containers": {
			"abc", []string{"10.1.0.1/24 0,172.17.0.1/16 0", "10.2.0.2/24 0,172.17.0.1/16 0", "10.3.0.3/24 0,172.17.0.1/16 0"}, "1 2 3",
		},
		"another network": {"ab", []string{"10.1.0.1/24 0,10.9.0.11/24 0", "10.2.0.2/24 0,10.9.0.12/24 0"}, "1 2|11 12"},
		"a faster one":    {"ab", []string{"10.1.0.1/24 1000,10.9.0.11/24 100000", "10.1.0.2/24 1000,10.9.0.12/24 25000"}, "11 12|1 2"},
		"one that is faster on one host": {
			"ab", []string{"10.1.0.1/24 1000,10.9.0.11/24 100000", "10.1.0.2/24 1000,10.9.0.12/24 1000"}, "1 2|11 12",
		},
		"default routes are tried however many faster networks there are": {
			"ab", []string{
				"10.1.0.1/24 1000,10.2.0.11/24 9000,10.3.0.21/24 9000,10.4.0.31/24 9000,10.5.0.41/24 9000",
				"10.1.0.2/24 1000,10.2.0.12/24 9000,10.3.0.22/24 9000,10.4.0.32/24 9000,10.5.0.42/24 9000",
			}, "11 12|21 22|31 32|1 2",
		},
		"two addresses in a network": {"ab", []string{"10.1.0.1/24 0,10.9.0.11/24 0,10.9.0.100/24 0", "10.2.0.2/24 0,10.9.0.12/24 0"}, "1 2|11 12"},
		"unknown speeds":             {"ab", []string{"10.1.0.1/24 0,10.9.0.11/24 100000", "10.1.0.2/24 1000,10.9.0.12/24 25000"}, "1 2|11 12"},
		"not all are in it": {
			"abc", []string{"10.1.0.1/24 0,10.9.0.11/24 0", "10.2.0.2/24 0,10.9.0.12/24 0", "10.3.0.3/24 0"}, "1 2 3",
		},
		"two ranks a host":     {"aabb", []string{"10.0.0.1/24 0", "10.0.0.1/24 0", "10.0.0.2/24 0", "10.0.0.2/24 0"}, "1 1 2 2"},
		"loopback on one":      {"ab", []string{"10.0.0.1/24 0", "127.0.0.1/8 0"}, ""},
		"loopback on one host": {"aa", []string{"127.0.0.1/8 0", "127.0.0.1/8 0"}, "1 1"},
		"nothing in common":    {"ab", []string{"10.0.2.15/24 0,10.1.0.1/24 0", "10.0.2.15/24 0,10.2.0.1/24 0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var offered []offers
			var candidates [][]netdev.Candidate
			for _, line := range c.ranks {
				var mine []netdev.Candidate
				for text := range strings.SplitSeq(line, ",") {
					var one netdev.Candidate
					require.NoError(t, one.UnmarshalText([]byte(text)))
					mine = append(mine, one)
				}
				offered = append(offered, offers{over4: mine[0].Net.Addr()})
				candidates = append(candidates, mine)
			}
			var got []string
			for _, w := range ways(testHosts(c.hosts), offered, candidates) {
				var last []string
				for _, at := range w.addrs {
					last = append(last, at.String()[strings.LastIndexByte(at.String(), '.')+1:])
				}
				got = append(got, strings.Join(last, " "))
			}
			require.Equal(t, c.want, strings.Join(got, "|"))
		})
	}
}

// TestOneRankAsksForAnInterface: all ranks of a host come to the same ways.
func TestOneRankAsksForAnInterface(t *testing.T) {
	settings := config.Default()
	var blobs [][]byte
	for r := range 2 {
		text, err := json.Marshal(blob{
			Version: protocolVersion, Rank: r, Size: 2, Host: "a/1", Address: "10.0.0.1", Address6: "fd00::1", Port: 7000, Key: "1", Job: "1",
			Settings: settings.Agreed(), Asked: r == 0,
		})
		require.NoError(t, err)
		blobs = append(blobs, text)
	}
	for r, name := range []string{"eth0", ""} {
		settings.Interface = name
		a, err := newAgreement(Options{Rank: r, Size: 2, Settings: settings}, blobs)
		require.NoError(t, err)
		require.Len(t, a.ways, 2)
		require.Equal(t, "10.0.0.1", a.addrs[1].Addr().String())
	}
}

// TestSlowAnswer: a peer that takes long to answer a greeting has the connection, so no other way is tried.
func TestSlowAnswer(t *testing.T) {
	l, err := newLobby(kernel{}, false, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, err)
	defer l.close()
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, slow.Close()) }()
	port := slow.Addr().(*net.TCPAddr).AddrPort().Port()
	a := &agreement{
		rank: 0, size: 2, keys: []uint64{1, 1}, ports: []uint16{0, port},
		ways: []way{{addrs: make([]netip.Addr, 2)}, {addrs: make([]netip.Addr, 2)}},
	}
	a.ways[0].addrs[1], a.ways[1].addrs[1] = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	var limit atomic.Int64
	go func() {
		for c, err := slow.Accept(); err == nil; c, err = slow.Accept() {
			if _, err := io.ReadFull(c, make([]byte, wire.HelloSize)); err == nil {
				systest.Pause(2 * time.Duration(limit.Load()))
				_, err = c.Write([]byte{byte(wire.Welcome)})
				assert.NoError(t, err)
			}
		}
	}()
	var c net.Conn
	systest.Longer(50*time.Millisecond, func(d time.Duration) bool { // until it was connected in time
		limit.Store(int64(d))
		c, err = l.tryWay(t.Context(), a, 1, slow.Addr().(*net.TCPAddr).AddrPort(), d, netdev.Bound{})
		return err == nil
	})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestNoWay(t *testing.T) {
	a := &agreement{size: 2, hosts: testHosts("ab")}
	nat := offers{over4: netip.MustParseAddr("10.0.2.15")}
	require.ErrorContains(t, a.noWay([]offers{nat, nat}), "both have the address 10.0.2.15 on their default route, and there is no network that all hosts are in: set MCAST_IFACE")
}

// behindNAT gives both hosts a default route that does not lead to the other one.
func behindNAT(t *testing.T, addresses ...string) func([2]*systest.Namespace) {
	t.Helper()
	return func(hosts [2]*systest.Namespace) {
		for i, h := range hosts {
			h.IP(t, "link add up0 type veth peer name up9")
			h.IP(t, "addr add "+addresses[i]+"/24 dev up0")
			h.IP(t, "link set up0 up")
			h.IP(t, "link set up9 up")
			h.AwaitCarrier(t, "up0")
			h.IP(t, "route add default dev up0")
		}
	}
}

// TestHostsBehindNAT: the virtual machines of a laptop have one address on their default routes, and a network
// beside it.
func TestHostsBehindNAT(t *testing.T) {
	waits(t)
	p := startRoles(t, hostRole{Size: 2, Family: "4", Timeout: systest.Limit, Anywhere: true}, behindNAT(t, "10.0.2.15", "10.0.2.15"))
	for i, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Empty(t, r.Info.Notes)
		require.Equal(t, []string{"v0", "v1"}[i], r.Info.Interface)
	}
	for _, r := range p.run(t) {
		require.Empty(t, r.Error)
	}
}

// TestWaysAreTried: default routes do not lead to the other host, a network beside them does.
func TestWaysAreTried(t *testing.T) {
	waits(t)
	p := startRoles(t, hostRole{Size: 2, Family: "4", Timeout: systest.Limit, Anywhere: true}, behindNAT(t, "10.66.0.1", "10.67.0.1"))
	for i, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Len(t, r.Info.Notes, 1)
		require.Contains(t, r.Info.Notes[0], "ranks come to each other by the network 10.9.0.0/24: rank 1 cannot be reached at 10.67.0.1:")
		require.Equal(t, []string{"v0", "v1"}[i], r.Info.Interface)
	}
	for _, r := range p.run(t) {
		require.Empty(t, r.Error)
	}
}
