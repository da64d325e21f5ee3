package bootstrap

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
	l, err := NewListener(hostnet.Kernel{}, false, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, err)
	defer l.Close()
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
