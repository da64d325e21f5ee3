package udp

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestChunkFor(t *testing.T) {
	for mtu, want := range map[int][2]int{
		65536: {65472, 65440}, 9000: {8928, 8896}, 1500: {1440, 1408}, 1400: {1312, 1312},
	} {
		for i, f := range families {
			require.Equal(t, want[i], ChunkFor(f, mtu))
			require.LessOrEqual(t, PacketFor(f, want[i]), mtu)
		}
	}
}

func TestOpenRefusesBadOptions(t *testing.T) {
	good := func() Options {
		addr, port := freshGroup(batch.IPv4)
		return Options{Rank: 0, Size: 1, Group: addr, Port: port, Interface: lo(t)}
	}
	for want, change := range map[string]func(o *Options){
		"group of 0 ranks: want 1 to 65536": func(o *Options) { o.Size = 0 },
		"rank 1 of 1: want 0 to 0":          func(o *Options) { o.Rank = 1 },
		"no interface given":                func(o *Options) { o.Interface = nil },
		"no port given":                     func(o *Options) { o.Port = 0 },
		"TTL 256: want 0 to 255":            func(o *Options) { o.TTL = 256 },
		"257 subgroups: want 1 to 256":      func(o *Options) { o.Subgroups = 257 },
		"groups 10.0.0.1 to 10.0.0.1: want multicast addresses": func(o *Options) {
			o.Group = netip.MustParseAddr("10.0.0.1")
		},
		"groups ::ffff:239.1.1.1 to": func(o *Options) {
			o.Group = netip.MustParseAddr("::ffff:239.1.1.1")
		},
		"groups invalid IP to": func(o *Options) { o.Group = netip.Addr{} },
		"groups 239.255.255.255 to 240.0.0.0": func(o *Options) {
			o.Group, o.Subgroups = netip.MustParseAddr("239.255.255.255"), 2
		},
		"chunk of 63 bytes on lo: want 64 to 65475 (MTU 65536 less headers)": func(o *Options) { o.Chunk = 63 },
		"chunk of 65476 bytes on lo: want 64 to 65475":                       func(o *Options) { o.Chunk = 65476 },
		"MTU 100 of lo leaves no room for a chunk: want at least 124":        func(o *Options) { o.Interface.MTU = 100 },
		"receive buffer -1":                           func(o *Options) { o.RcvBuf = -1 },
		"offload(9): want auto, gso, batch or single": func(o *Options) { o.Offload = 9 },
		"addresses of 2 ranks: want all 1, or none": func(o *Options) {
			o.Sources = make([]netip.Addr, 2)
		},
		"address ::1 of rank 0: want a host's IPv4 address, as the group has": func(o *Options) {
			o.Sources = []netip.Addr{netip.IPv6Loopback()}
		},
		"address 127.0.0.1 of rank 0: want a host's IPv6 address": func(o *Options) {
			o.Group, o.Sources = netip.MustParseAddr("ff15::1"), []netip.Addr{localhost(batch.IPv4)}
		},
		"control connection of rank 0 to rank 3 of 1: want another rank's": func(o *Options) {
			o.Conns = map[int]net.Conn{3: nil}
		},
	} {
		o := good()
		change(&o)
		_, err := Open(o)
		require.ErrorContains(t, err, want)
	}
}

// TestOpenAgain has Open fail at each of its system calls that need a descriptor, memory of the
// kernel, or a route: nothing is left open, and with the same connections it succeeds afterwards.
func TestOpenAgain(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	addr, port := freshGroup(batch.IPv4)
	conns := systest.Mesh(t, 2)
	o := Options{Rank: 0, Size: 2, Job: 7, Group: addr, Port: port, Interface: lo(t), Conns: conns[0]}
	first, err := Open(Options{Rank: 1, Size: 2, Job: 7, Group: addr, Port: port, Interface: lo(t), Conns: conns[1]})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, first.Close()) })
	before := systest.Descriptors(t)
	for _, d := range []systest.Denial{
		{Call: unix.SYS_EPOLL_CREATE1, Errno: unix.EMFILE}, {Call: unix.SYS_EVENTFD2, Errno: unix.ENFILE},
		{Call: unix.SYS_SOCKET, Errno: unix.ENOBUFS}, {Call: unix.SYS_FCNTL, Errno: unix.EMFILE},
		{Call: unix.SYS_EPOLL_CTL, Errno: unix.ENOMEM},
		{Call: unix.SYS_SETSOCKOPT, Errno: unix.ENOBUFS}, {Call: unix.SYS_BIND, Errno: unix.ENOBUFS},
		{Call: unix.SYS_CONNECT, Errno: unix.ENETUNREACH},
	} {
		systest.InSandboxWith(t, []systest.Denial{d}, func() { _, err = Open(o) })
		require.ErrorIs(t, err, d.Errno)
		require.Equal(t, before, systest.Descriptors(t))
	}
	g, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	require.Empty(t, conns[0], "it has been taken over")
}

// TestOpenWithFewDescriptors: beside the connections, the fabric's own descriptors and one more are
// enough. With one less Open fails, and the caller still owns all connections, taken ones included.
func TestOpenWithFewDescriptors(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	const size = 24
	addr, port := freshGroup(batch.IPv4)
	conns := systest.Mesh(t, size)
	open := func(spare int) (g *Gather, err error) {
		o := Options{Rank: 0, Size: size, Job: 7, Group: addr, Port: port, Interface: lo(t), Conns: conns[0]}
		systest.WithDescriptors(t, spare, func() { g, err = Open(o) })
		return g, err
	}
	before := systest.Descriptors(t)
	g, err := open(0)
	for spare := 1; err != nil; spare++ {
		require.ErrorIs(t, err, unix.EMFILE)
		require.Less(t, spare, 10)
		require.Len(t, conns[0], size-1)
		require.Equal(t, before, systest.Descriptors(t))
		g, err = open(spare)
	}
	require.NoError(t, g.Close())
	require.Equal(t, len(before)-(size-1), len(systest.Descriptors(t)), "each is closed once")
}

// TestOpenFailsMidway: of the connections some are taken, and all are the caller's still.
func TestOpenFailsMidway(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	const size = 4
	addr, port := freshGroup(batch.IPv4)
	conns := systest.Mesh(t, size)
	o := Options{Rank: 0, Size: size, Job: 7, Group: addr, Port: port, Interface: lo(t), Conns: conns[0]}
	before := systest.Descriptors(t)
	last := conns[0][size-1]
	conns[0][size-1], _ = net.Pipe() // cannot be taken
	_, err := Open(o)
	require.ErrorContains(t, err, "member 3: udp: take over connection: it is a *net.pipe, want one of TCP")
	require.IsType(t, &sys.Taken{}, conns[0][1])
	require.Equal(t, before, systest.Descriptors(t), "one for each connection")
	conns[0][size-1] = last
	g, err := Open(o)
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.Equal(t, len(before)-(size-1), len(systest.Descriptors(t)), "each is closed once")
}

// TestPortInUse has a socket hold the address that does not share it.
func TestPortInUse(t *testing.T) {
	addr, port := freshGroup(batch.IPv4)
	fd, err := batch.Open(unix.AF_INET)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Port: int(port)}))
	_, err = Open(Options{Rank: 0, Size: 1, Group: addr, Port: port, Interface: lo(t)})
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err, fmt.Sprintf("%v:%d is in use by a socket that does not share it", addr, port))
}

// TestFootprint compares the estimate with what the kernel says that a queued
// datagram takes.
func TestFootprint(t *testing.T) {
	for _, chunk := range []int{64, 1000, 1440, 2000, 4000, 8896, 16 << 10, 20000, 32 << 10, 65472} {
		ranks, _ := group(t, 2, func(o *Options) { o.Chunk, o.Offload, o.RcvBuf = chunk, batch.OffloadBatch, 4<<20 })
		require.Equal(t, 1, ranks[0].Multicast(run(0, 1, make([]byte, chunk), 0, 1)))
		// The first word of SO_MEMINFO is what the receive queue takes.
		taken, err := unix.GetsockoptInt(ranks[1].receivers[0].fd, unix.SOL_SOCKET, unix.SO_MEMINFO)
		require.NoError(t, err)
		require.Positive(t, taken)
		require.GreaterOrEqual(t, batch.Footprint(PacketFor(batch.IPv4, chunk), true), taken, chunk)
	}
}

func TestWindow(t *testing.T) {
	group, _ := freshGroup(batch.IPv4)
	lo := &net.Interface{Flags: net.FlagLoopback, MTU: 65536}
	of := func(chunk, window int, ifi *net.Interface) *Options {
		return &Options{Group: group, Chunk: chunk, Window: window, Interface: ifi}
	}
	require.Equal(t, 4, window(2*212992, of(65472, 1<<30, lo)),
		"the default of net.core.rmem_max, twice as the kernel counts")
	require.Equal(t, 69, window(2*212992, of(1440, 1<<30, &net.Interface{MTU: 1500})))
	require.Equal(t, 2, window(8<<20, of(65472, 128<<10, lo)), "limited")
	require.Equal(t, 1, window(4<<10, of(65472, 1, lo)), "never none")
}
