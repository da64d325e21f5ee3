package datagram

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

func TestOpenRefusesBadOptions(t *testing.T) {
	for want, change := range map[string]func(o *Options){
		"local address invalid IP: want an address of this host": func(o *Options) { o.Local = netip.Addr{} },
		"local address 239.0.0.1: want": func(o *Options) {
			o.Local = netip.MustParseAddr("239.0.0.1")
		},
		"ports 9 to 8: want first to last of 1 to 65535, or 0 to 0 for any": func(o *Options) { o.First, o.Last = 9, 8 },
		"ports 0 to 8: want":                            func(o *Options) { o.Last = 8 },
		"receive buffer -1: want a size in bytes, or 0": func(o *Options) { o.RcvBuf = -1 },
		"offload(9): want auto, gso, batch or single":   func(o *Options) { o.Offload = 9 },
		"bind port 0 of 192.0.2.1: cannot assign requested address": func(o *Options) {
			o.Local = netip.MustParseAddr("192.0.2.1")
		},
		"zone of [fe80::1%nowhere]:0: route ip+net: no such network interface": func(o *Options) {
			o.Local = netip.MustParseAddr("fe80::1%nowhere")
		},
	} {
		o := Options{Local: loopbacks[0]}
		change(&o)
		_, err := Open(o)
		require.ErrorContains(t, err, want)
	}
}

func TestPortsOfARange(t *testing.T) {
	free := open(t, Options{Local: loopbacks[0]})
	port := free.Port()
	require.NotZero(t, port)
	_, err := Open(Options{Local: loopbacks[0], First: port, Last: port})
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err, "of 127.0.0.1 are all in use: free some or allow more")
	require.NoError(t, free.Close())
	require.Equal(t, port, open(t, Options{Local: loopbacks[0], First: port, Last: port}).Port())
	last := uint16(min(int(port)+100, 65535))
	next := open(t, Options{Local: loopbacks[0], First: port, Last: last}).Port()
	require.Greater(t, next, port)
	require.LessOrEqual(t, next, last)
}

func TestConnectRefusesOtherPeers(t *testing.T) {
	for _, peer := range []string{"[::1]:9", "127.0.0.1:0"} {
		s := open(t, Options{Local: loopbacks[0]})
		require.ErrorContains(t, s.Connect(netip.MustParseAddrPort(peer)),
			"want an address and a port of the same IP version")
	}
	a, b := pair(t, Options{})
	err := a.Connect(netip.AddrPortFrom(loopbacks[0], b.Port()))
	require.ErrorContains(t, err, "already connected to 127.0.0.1:")
}

func TestMTU(t *testing.T) {
	require.Zero(t, open(t, Options{Local: loopbacks[0]}).MTU())
	a, _ := pair(t, Options{Local: loopbacks[0]})
	require.Equal(t, 65507, a.MTU())
	a, _ = pair(t, Options{Local: loopbacks[1]})
	require.Equal(t, 65487, a.MTU())
	a, _ = pair(t, Options{Local: netip.MustParseAddr("::ffff:127.0.0.1")})
	require.Equal(t, 65507, a.MTU())
}

func TestClosedSocket(t *testing.T) {
	a, _ := pair(t, Options{})
	b := newBatch(t, 100)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.Equal(t, -1, a.FD())
	add(t, b, 0, 100)
	sent, err := b.Flush(a)
	require.Zero(t, sent)
	require.ErrorIs(t, err, unix.EBADF)
	n, err := b.Receive(a, nil, 1, &checker{})
	require.Zero(t, n)
	require.ErrorIs(t, err, unix.EBADF)
}

func TestNewBatchRefusesBadSizes(t *testing.T) {
	for _, c := range [][2]int{{0, 10}, {65, 10}, {32, -1}, {32, 65507 - 31}} {
		_, err := NewBatch(c[0], c[1])
		require.ErrorContains(t, err, "want 1 to 64 and 0 to")
	}
}

// TestFootprint compares the estimate with what the kernel says that queued
// datagrams take.
func TestFootprint(t *testing.T) {
	for _, offload := range offloads {
		for _, size := range []int{0, 64, 1000, 1440, 2000, 4000, 8896, 16 << 10, 20000, 33000, 63 << 10} {
			from, to := pair(t, Options{Offload: offload})
			b := newBatch(t, size)
			for i := range 3 {
				add(t, b, i, size)
			}
			sent, err := b.Flush(from)
			require.NoError(t, err)
			require.Equal(t, 3, sent)
			// The first word of SO_MEMINFO is what the receive queue takes.
			taken, err := unix.GetsockoptInt(to.sender.FD, unix.SOL_SOCKET, unix.SO_MEMINFO)
			require.NoError(t, err)
			require.Positive(t, taken)
			require.GreaterOrEqual(t, 3*batch.Footprint(size+head+28, true), taken, size)
			require.GreaterOrEqual(t, batch.Footprint(size+head+28, false), batch.Footprint(size+head+28, true))
		}
	}
}
