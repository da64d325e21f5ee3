package group

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestSlowAnswer: a peer that takes long to answer a greeting has the connection, so no other way is tried.
func TestSlowAnswer(t *testing.T) {
	l, err := newLobby(hostnet.Kernel{}, false, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, err)
	defer l.close()
	slow, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, slow.Close()) }()
	port := slow.Addr().(*net.TCPAddr).AddrPort().Port()
	a := &team.Plan{
		Rank: 0, Size: 2, Keys: []uint64{1, 1}, Ports: []uint16{0, port},
		Ways: []team.Way{{Addrs: make([]netip.Addr, 2)}, {Addrs: make([]netip.Addr, 2)}},
	}
	a.Ways[0].Addrs[1], a.Ways[1].Addrs[1] = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
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
