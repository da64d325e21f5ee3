package datagram

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// cabled returns connected sockets at the two ends of a cable.
func cabled(t *testing.T, ns [2]*systest.Namespace, o Options) (ends [2]*Socket) {
	t.Helper()
	var errs [2]error
	at := [2]netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	if o.Local.Is6() {
		at = [2]netip.Addr{netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fd09::2")}
	}
	for i, n := range ns {
		n.Do(func() {
			o.Local = at[i]
			ends[i], errs[i] = Open(o)
		})
	}
	require.NoError(t, errors.Join(errs[:]...))
	for i, s := range ends {
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.Connect(netip.AddrPortFrom(at[1-i], ends[1-i].Port())))
	}
	return ends
}

func TestEthernet(t *testing.T) {
	for _, c := range []struct {
		mtu  int
		like netip.Addr
	}{{1500, loopbacks[0]}, {9000, loopbacks[0]}, {1500, loopbacks[1]}} {
		ns := systest.Cable(t, c.mtu)
		for _, offload := range offloads {
			headers := batch.FamilyOf(c.like).Headers
			t.Run(fmt.Sprintf("%d/%d/%v", c.mtu, headers, offload), func(t *testing.T) {
				ends := cabled(t, ns, Options{Offload: offload, Local: c.like})
				require.Equal(t, c.mtu-headers, ends[0].MTU())
				largest := c.mtu - headers - head
				for _, size := range []int{0, 100, 1408, largest} {
					sizes := append(repeat(200, size), size/2, largest, 1)
					exchange(t, ends[0], ends[1], sizes, nil)
					exchange(t, ends[1], ends[0], sizes, make([]byte, size))
				}
				out := newBatch(t, largest)
				add(t, out, 0, largest+1)
				_, err := out.Flush(ends[0])
				require.ErrorIs(t, err, unix.EMSGSIZE)
				require.ErrorContains(t, err, fmt.Sprintf("the path takes %d", c.mtu-headers))
				exchange(t, ends[0], ends[1], repeat(200, largest), nil)
			})
		}
	}
}

// TestQueueHoldsOnEthernet sends what Queue promises to ends that do not read.
func TestQueueHoldsOnEthernet(t *testing.T) {
	ns := systest.Cable(t, 9000)
	for _, offload := range offloads {
		for _, size := range []int{0, 100, 1440, 8940} {
			ends := cabled(t, ns, Options{Offload: offload, RcvBuf: 256 << 10})
			promised := ends[1].Queue(head + size)
			for range 2 {
				c := &checker{sizes: repeat(promised, size)}
				flood(t, ends[0], size, promised)
				c.receive(t, newBatch(t, size), ends[1], promised)
				require.Len(t, c.got, promised)
			}
		}
	}
}

// TestPathShrinks has a route say that the path takes less than the device.
func TestPathShrinks(t *testing.T) {
	ns := systest.Cable(t, 1500)
	ends := cabled(t, ns, Options{})
	exchange(t, ends[0], ends[1], repeat(50, 1440), nil)
	ns[0].IP(t, "route add 10.9.0.2/32 dev v0 mtu 1000")
	out := newBatch(t, 1440)
	for i := range 3 {
		add(t, out, i, 1440)
	}
	sent, err := out.Flush(ends[0])
	require.Zero(t, sent)
	require.ErrorIs(t, err, unix.EMSGSIZE)
	require.ErrorContains(t, err, "send 1472 bytes from port ")
	require.ErrorContains(t, err, "the path takes 972")
	require.Equal(t, 972, ends[0].MTU())
	exchange(t, ends[0], ends[1], repeat(50, 972-head), nil)
}

// TestNoRoom sends to a host that never answers who has its address: what
// waits for the answer fills the send buffer.
func TestNoRoom(t *testing.T) {
	ns := systest.Cable(t, 1500)
	var s *Socket
	var err error
	ns[0].Do(func() {
		if err = os.WriteFile("/proc/sys/net/ipv4/neigh/v0/mcast_solicit", []byte("1000"), 0); err == nil {
			s, err = Open(Options{Local: netip.MustParseAddr("10.9.0.1"), Offload: batch.OffloadBatch})
		}
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Connect(netip.MustParseAddrPort("10.9.0.77:9")))
	require.NoError(t, unix.SetsockoptInt(s.sender.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, 16<<10))
	out := newBatch(t, 1440)
	for i := range MaxBatch {
		add(t, out, i, 1440)
	}
	sent, err := out.Flush(s)
	require.NoError(t, err)
	require.Positive(t, sent)
	require.Less(t, sent, MaxBatch)
	require.Zero(t, out.Added(), "forgotten")
	add(t, out, 0, 1440)
	sent, err = out.Flush(s)
	require.NoError(t, err)
	require.Zero(t, sent)
}
