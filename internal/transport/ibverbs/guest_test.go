package ibverbs

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
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

// queues opens a queue on each device, of so many datagrams, in one group.
func queues(t *testing.T, d [2]*Device, index [2]int, group netip.Addr, count int) (first, second *Queue) {
	var q [2]*Queue
	for i := range d {
		require.Equal(t, 4096, d[i].MTU())
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		require.NoError(t, batch.IPv4.Join(fd, group, index[i]))
		q[i], err = d[i].NewQueue(QueueOptions{Group: group, Key: 0x1234, Send: count, Receive: count, Hops: 1})
		require.NoError(t, err)
		t.Cleanup(q[i].Close)
		require.NoError(t, q[i].Arm(false))
	}
	return q[0], q[1]
}

// readable reports whether a descriptor becomes readable within 10 s.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		if !errors.Is(err, unix.EINTR) { // Go's scheduler sends signals
			require.NoError(t, err)
			return ready == 1
		}
	}
}

// arrivals waits for n datagrams, after the queue's descriptor has become readable.
func arrivals(t *testing.T, q *Queue, n int) (got []Arrival) {
	require.True(t, readable(t, q.FD()))
	systest.Eventually(t, func() bool {
		var a [4]Arrival
		came, err := q.Arrived(a[:])
		require.NoError(t, err)
		got = append(got, a[:came]...)
		return len(got) == n
	})
	return got
}

// TestMulticast: what one queue sends, another receives behind a GRH that says who sent it, and so does the sender.
func TestMulticast(t *testing.T) {
	d, index := devices(t)
	const slot, count = GRH + 4096, 8
	sender, other := queues(t, d, index, netip.MustParseAddr("239.7.7.7"), count)
	var rings [2]*Region
	for i, q := range []*Queue{sender, other} {
		var err error
		rings[i], err = d[i].Map(slot*count, Local)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, rings[i].Close()) })
		n, err := q.Receive(rings[i], slot, []uint32{0, 1, 2, 3})
		require.NoError(t, err)
		require.Equal(t, 4, n)
	}
	out, err := d[0].Map(slot*count, Local)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	copy(out.Bytes[7*slot:], "first")
	copy(out.Bytes, "second")
	n, err := sender.Send(out, slot, count, 7, []uint32{5, 6})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for i, q := range []*Queue{sender, other} {
		for j, a := range arrivals(t, q, 2) {
			at := rings[i].Bytes[a.Slot*slot:]
			require.Equal(t, []string{"first", "second"}[j], string(at[GRH:][:a.Bytes]))
			require.Equal(t, sender.Number(), a.From)
			require.Equal(t, []byte{10, 9, 1, 1}, at[32:36], "the sender's address")
		}
	}
	systest.Eventually(t, func() bool {
		sent, err := sender.Sent()
		require.NoError(t, err)
		return sent == 9
	})
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

// regions returns how many memory regions the kernel says that a device has (rdma resource).
func regions(t *testing.T, device string) int {
	out, err := exec.Command("rdma", "-j", "resource", "show", device).Output()
	require.NoError(t, err)
	var shown []struct{ MR int }
	require.NoError(t, json.Unmarshal(out, &shown))
	require.Len(t, shown, 1)
	return shown[0].MR
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// TestRegistrations: a buffer that is registered over and over is known to the device once; when nobody refers to it,
// the device no longer holds it.
func TestRegistrations(t *testing.T) {
	d, _ := devices(t)
	require.NoError(t, SurvivesFork())
	cache := gpudirect.NewCache(Registrar{Device: d[0], Access: Local}, gpudirect.Limits{})
	size := 16 * os.Getpagesize()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	before := regions(t, d[0].Name())
	var held []*gpudirect.Registration
	for range 100 {
		r, err := cache.Acquire(address(b)+13, uintptr(size-100), gpudirect.Host)
		require.NoError(t, err)
		require.EqualValues(t, address(b), r.Token.(*Region).Address(0))
		held = append(held, r)
	}
	require.EqualValues(t, 1, d[0].Registrations())
	require.Equal(t, before+1, regions(t, d[0].Name()))
	for _, r := range held {
		require.NoError(t, cache.Release(r))
	}
	require.Equal(t, before, regions(t, d[0].Name()))
	require.NoError(t, unix.Munmap(b))
	_, err = cache.Acquire(address(b), uintptr(size), gpudirect.Host)
	require.ErrorContains(t, err, "device rxe1: ibv_reg_mr", "it is not mapped any more")
	require.NoError(t, cache.Close())
}
