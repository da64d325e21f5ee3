package ibverbs

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// devices opens the RDMA devices of h1 and h2, which the guest with soft-RoCE has.
func devices(t *testing.T) (d [2]*Device, index [2]int) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	for i, name := range []string{"h1", "h2"} {
		ifi, err := net.InterfaceByName(name)
		require.NoError(t, err)
		d[i], err = Open(ifi, netip.AddrFrom4([4]byte{10, 9, 1, byte(i + 1)}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d[i].Close()) })
		index[i] = ifi.Index
	}
	return d, index
}

// TestMulticast: what one queue sends, another receives behind a GRH that says who sent it, and so does the sender.
func TestMulticast(t *testing.T) {
	d, index := devices(t)
	group := netip.MustParseAddr("239.7.7.7")
	var queues [2]*Queue
	var rings [2]*Region
	const slot, count = GRH + 4096, 8
	for i := range d {
		require.Equal(t, 4096, d[i].MTU())
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		require.NoError(t, batch.IPv4.Join(fd, group, index[i]))
		queues[i], err = d[i].NewQueue(QueueOptions{Group: group, Key: 0x1234, Send: count, Receive: count, Hops: 1})
		require.NoError(t, err)
		t.Cleanup(queues[i].Close)
		rings[i], err = d[i].Map(slot * count)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, rings[i].Close()) })
		n, err := queues[i].Receive(rings[i], slot, []uint32{0, 1, 2, 3})
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.NoError(t, queues[i].Arm(false))
	}
	out, err := d[0].Map(slot * count)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	copy(out.Bytes[7*slot:], "first")
	copy(out.Bytes, "second")
	n, err := queues[0].Send(out, slot, count, 7, []uint32{5, 6})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for i, q := range queues {
		fds := []unix.PollFd{{Fd: int32(q.FD()), Events: unix.POLLIN}}
		ready, err := unix.Poll(fds, 10_000)
		require.NoError(t, err)
		require.Equal(t, 1, ready)
		var got []Arrival
		require.Eventually(t, func() bool {
			var a [4]Arrival
			n, err := q.Arrived(a[:])
			require.NoError(t, err)
			got = append(got, a[:n]...)
			return len(got) == 2
		}, 10*time.Second, time.Millisecond)
		for j, text := range []string{"first", "second"} {
			at := rings[i].Bytes[got[j].Slot*slot:]
			require.Equal(t, text, string(at[GRH:][:got[j].Bytes]))
			require.Equal(t, queues[0].Number(), got[j].From)
			require.Equal(t, []byte{10, 9, 1, 1}, at[32:36], "the sender's address")
		}
	}
	require.Eventually(t, func() bool {
		sent, err := queues[0].Sent()
		require.NoError(t, err)
		return sent == 9
	}, 10*time.Second, time.Millisecond)
}

// TestNoDevice: an interface without a device is named, and so are the devices that there are.
func TestNoDevice(t *testing.T) {
	devices(t)
	lo, err := net.InterfaceByName("lo")
	require.NoError(t, err)
	_, err = Open(lo, netip.MustParseAddr("127.0.0.1"))
	require.ErrorContains(t, err, "no RDMA device is usable on lo")
	h1, err := net.InterfaceByName("h1")
	require.NoError(t, err)
	_, err = Open(h1, netip.MustParseAddr("10.9.1.77"))
	require.ErrorContains(t, err, "has no RoCE v2 GID of 10.9.1.77 on h1")
}
