package ibverbs

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
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

// arrivals waits for n datagrams, of which the descriptor tells.
func arrivals(t *testing.T, q *Queue, n int) (got []Arrival) {
	require.True(t, readable(t, q.FD()))
	require.Eventually(t, func() bool {
		var a [4]Arrival
		came, err := q.Arrived(a[:])
		require.NoError(t, err)
		got = append(got, a[:came]...)
		return len(got) == n
	}, 10*time.Second, time.Millisecond)
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
	require.Eventually(t, func() bool {
		sent, err := sender.Sent()
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

// regions returns how many memory regions the kernel says that a device has (rdma resource).
func regions(t *testing.T, device string) int {
	out, err := exec.Command("rdma", "-j", "resource", "show", device).Output()
	require.NoError(t, err)
	var shown []struct{ MR int }
	require.NoError(t, json.Unmarshal(out, &shown))
	require.Len(t, shown, 1)
	return shown[0].MR
}

// mapFile maps a file of so many bytes.
func mapFile(t *testing.T, fd, bytes int) []byte {
	b, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	return b
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// TestRegistrations: a buffer that is registered over and over is known to the device once; when its owner invalidates it, the
// device lets go of it.
func TestRegistrations(t *testing.T) {
	d, _ := devices(t)
	require.NoError(t, SurvivesFork())
	cache := gpudirect.NewCache(Registrar{Device: d[0], Access: Local, Invalidated: true}, gpudirect.Limits{Count: 8, Bytes: 1 << 30})
	size := 16 * os.Getpagesize()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	before := regions(t, d[0].Name())
	for range 100 {
		r, err := cache.Acquire(address(b)+13, uintptr(size-100), gpudirect.Host)
		require.NoError(t, err)
		require.EqualValues(t, address(b), r.Token.(*Region).Address(0))
		require.NoError(t, cache.Release(r))
	}
	require.Equal(t, Counts{Registered: 1}, d[0].Counts())
	require.Equal(t, before+1, regions(t, d[0].Name()))
	require.NoError(t, cache.Invalidate(address(b), uintptr(size)))
	require.Equal(t, Counts{Registered: 1, Deregistered: 1}, d[0].Counts())
	require.Equal(t, before, regions(t, d[0].Name()))
	require.NoError(t, unix.Munmap(b))
	_, err = cache.Acquire(address(b), uintptr(size), gpudirect.Host)
	require.ErrorContains(t, err, "device rxe1: ibv_reg_mr", "it is not mapped any more")
	require.NoError(t, cache.Close())
}

// dmabuf is memory behind a DMA-BUF, which stands for a GPU's, registered with a device.
type dmabuf struct {
	fd     int
	seen   []byte // stands for the GPU's addresses
	device *Device
	cache  *gpudirect.Cache
	held   *gpudirect.Registration
	key    uint32
}

// exported registers so many bytes behind a udmabuf, or more. Soft-RoCE registers no DMA-BUF, and says so: then the device is
// given a mapping of the memory that the DMA-BUF was made of.
func exported(t *testing.T, d *Device, bytes int, a Access) *dmabuf {
	t.Helper()
	page := os.Getpagesize()
	bytes = (bytes + page - 1) / page * page
	memory := systest.Memfd(t, int64(bytes))
	m := &dmabuf{fd: systest.Udmabuf(t, memory, uint64(bytes)), seen: mapFile(t, memory, bytes), device: d}
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m.seen)) })
	export := func(addr, size uintptr) (int, error) {
		require.Equal(t, address(m.seen), addr)
		require.Equal(t, uintptr(bytes), size)
		return unix.Dup(m.fd)
	}
	m.cache = gpudirect.NewCache(exporting{Registrar{Device: d, Access: a, Invalidated: true}, export}, gpudirect.Limits{Count: 8, Bytes: 1 << 30})
	var err error
	if m.held, err = m.cache.Acquire(address(m.seen), uintptr(bytes), gpudirect.CUDA); err != nil {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "device rxe2: its driver registers no DMA-BUF")
		t.Logf("what runs is the stand-in: %v", err)
		m.held, err = m.cache.Acquire(address(m.seen), uintptr(bytes), gpudirect.Host)
	} else {
		t.Log("the device has registered the DMA-BUF itself")
	}
	require.NoError(t, err)
	m.key = m.held.Token.(*Region).RemoteKey()
	return m
}

func (m *dmabuf) address() uint64 { return uint64(address(m.seen)) }

// look calls f with the memory as whoever has the DMA-BUF sees it.
func (m *dmabuf) look(t *testing.T, f func(b []byte)) {
	t.Helper()
	mapping, err := gpudirect.MapDMABuf(m.fd, 0, len(m.seen))
	require.NoError(t, err)
	require.NoError(t, mapping.Begin(gpudirect.Read))
	f(mapping.Bytes())
	require.NoError(t, mapping.End(gpudirect.Read))
	require.NoError(t, mapping.Close())
}

// end says that the memory is about to go: the device is done with it when the last reference is given up.
func (m *dmabuf) end(t *testing.T) {
	t.Helper()
	before := m.device.Counts()
	require.NoError(t, m.cache.Invalidate(address(m.seen), uintptr(len(m.seen))))
	require.Equal(t, 1, m.cache.Stats().Registered)
	require.Equal(t, before, m.device.Counts())
	require.NoError(t, m.cache.Release(m.held))
	require.Zero(t, m.cache.Stats().Registered)
	require.Equal(t, before.Deregistered+1, m.device.Counts().Deregistered)
	require.NoError(t, m.cache.Close())
}

// TestDMABuf: what a device receives into the memory behind a DMA-BUF, whoever has the DMA-BUF finds there.
func TestDMABuf(t *testing.T) {
	d, index := devices(t)
	const slot, count = GRH + 4096, 8
	m := exported(t, d[1], slot*count, Local)
	ring := m.held.Token.(*Region)

	out, err := d[0].Map(slot*count, Local)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	from, to := queues(t, d, index, netip.MustParseAddr("239.7.7.8"), count)
	n, err := to.Receive(ring, slot, []uint32{0, 1, 2})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	var sizes []uint32
	for i := range 3 {
		sizes = append(sizes, 4096)
		for j := range 4096 {
			out.Bytes[i*slot+j] = byte(7*i + j*j + 1)
		}
	}
	_, err = from.Send(out, slot, count, 0, sizes)
	require.NoError(t, err)
	got := arrivals(t, to, 3)

	m.look(t, func(b []byte) {
		for i, a := range got {
			require.Equal(t, out.Bytes[i*slot:][:4096], b[a.Slot*slot+GRH:][:4096], "datagram %d", i)
		}
	})
	m.end(t)
}

// TestDMABufByWrites: a peer writes straight to the memory behind a DMA-BUF. Its completion says that the bytes are on their way
// past the CPU; a read of a byte of them, by a connection of the device to itself, is answered behind them, so that a GPU that
// is told afterwards finds them.
func TestDMABufByWrites(t *testing.T) {
	e := pair(t, 10*time.Second, 1)
	d := e[1].device
	m := exported(t, d, 1<<16, RemoteWrite|RemoteRead)
	to := m.held.Token.(*Region)
	const at, bytes = 12_345, 40_000
	for i := range bytes {
		e[0].memory.Bytes[i] = byte(i*i + 3)
	}
	_, err := e[0].Post([]Transfer{{
		ID: 1, Verb: WriteImmediate, Local: e[0].memory.Address(0), LocalKey: e[0].memory.Key(), Bytes: bytes, Immediate: 7,
		Remote: to.Address(at), RemoteKey: to.RemoteKey(),
	}})
	require.NoError(t, err)
	require.Equal(t, uint32(7), completed(t, e[1].receives, 1)[0].Immediate)
	require.Equal(t, OK, completed(t, e[0].sends, 1)[0].Status)

	own, err := d.NewCompletions(4)
	require.NoError(t, err)
	t.Cleanup(own.Close)
	itself, err := d.NewConnection(ConnectionOptions{Sends: own, Receives: own, Send: 1, Receive: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, itself.Close()) })
	require.NoError(t, itself.Connect(itself.Address(), 10*time.Second, 0))
	flushed := e[1].memory
	_, err = itself.Post([]Transfer{{
		ID: 2, Verb: Read, Local: flushed.Address(0), LocalKey: flushed.Key(), Bytes: 1, Remote: to.Address(at + bytes - 1), RemoteKey: to.RemoteKey(),
	}})
	require.NoError(t, err)
	require.Equal(t, OK, completed(t, own, 1)[0].Status)
	require.Equal(t, e[0].memory.Bytes[bytes-1], flushed.Bytes[0])

	m.look(t, func(b []byte) {
		require.Equal(t, e[0].memory.Bytes[:bytes], b[at:][:bytes])
		require.Zero(t, b[at-1])
		require.Zero(t, b[at+bytes])
	})
	m.end(t)

	// The memory is not the peer's any more.
	_, err = e[0].Post([]Transfer{{
		ID: 3, Verb: Write, Local: e[0].memory.Address(0), LocalKey: e[0].memory.Key(), Bytes: 8, Remote: m.address(), RemoteKey: m.key,
	}})
	require.NoError(t, err)
	require.Equal(t, "remote access error", completed(t, e[0].sends, 1)[0].Status.String())
}

// end is one end of a connection in tests, with memory that its peer may write to and read.
type end struct {
	*Connection
	sends, receives *Completions
	memory          *Region
}

// pair returns two connected ends, on h1 and h2, that have posted so many empty buffers each.
func pair(t *testing.T, within time.Duration, buffers int) (e [2]*end) {
	d, _ := devices(t)
	for i := range e {
		e[i] = new(end)
		var err error
		for _, c := range []**Completions{&e[i].sends, &e[i].receives} {
			*c, err = d[i].NewCompletions(64)
			require.NoError(t, err)
			t.Cleanup((*c).Close)
		}
		e[i].memory, err = d[i].Map(1<<16, RemoteWrite|RemoteRead)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e[i].memory.Close()) })
		e[i].Connection, err = d[i].NewConnection(ConnectionOptions{Sends: e[i].sends, Receives: e[i].receives, Send: 16, Receive: 16})
		require.NoError(t, err)
		t.Cleanup(func() {
			if e[i].qp != nil {
				require.NoError(t, e[i].Close())
			}
		})
		for id := range buffers {
			n, err := e[i].Receive([]Buffer{{ID: uint64(100 + id)}})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
	}
	for i := range e {
		require.NoError(t, e[i].Connect(e[1-i].Address(), within, 0))
	}
	return e
}

// completed waits for so many completions.
func completed(t *testing.T, c *Completions, n int) []Completion {
	t.Helper()
	all := make([]Completion, n)
	for have := 0; have < n; {
		require.NoError(t, c.Arm())
		got, err := c.Poll(all[have:])
		require.NoError(t, err)
		if have += got; got > 0 || have == n {
			continue
		}
		require.True(t, readable(t, c.FD()), "%d of %d completions came", have, n)
	}
	return all
}

// TestConnection: writes, reads and sends do what they say, in the order in which they were posted.
func TestConnection(t *testing.T) {
	e := pair(t, 10*time.Second, 2)
	n, err := e[1].Receive([]Buffer{{ID: 200, Local: e[1].memory.Address(40_000), LocalKey: e[1].memory.Key(), Bytes: 100}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	copy(e[0].memory.Bytes, "some words")
	copy(e[1].memory.Bytes[50_000:], "of the peer")
	from, to := e[0].memory, e[1].memory
	transfer := func(id uint64, v Verb, at, bytes, there int) Transfer {
		return Transfer{
			ID: id, Verb: v, Local: from.Address(at), LocalKey: from.Key(), Bytes: uint32(bytes), Immediate: uint32(0xfedc0000 + id),
			Remote: to.Address(there), RemoteKey: to.RemoteKey(),
		}
	}
	n, err = e[0].Post([]Transfer{
		transfer(1, Write, 0, 4, 10_000),
		transfer(2, WriteImmediate, 5, 5, 20_000),
		transfer(3, WriteImmediate, 0, 0, 0),
		transfer(4, Send, 0, 10, 0),
		transfer(5, Read, 30_000, 11, 50_000),
	})
	require.NoError(t, err)
	require.Equal(t, 5, n)
	for i, c := range completed(t, e[0].sends, 5) {
		require.Equal(t, Completion{ID: uint64(i + 1), Bytes: c.Bytes, Immediate: c.Immediate}, c)
	}
	came := completed(t, e[1].receives, 3)
	came[2].Immediate = 0 // a send has none
	require.Equal(t, []Completion{
		{ID: 100, Bytes: 5, Immediate: 0xfedc0002, received: 1},
		{ID: 101, Immediate: 0xfedc0003, received: 1},
		{ID: 200, Bytes: 10, received: 1},
	}, came)
	require.Equal(t, "some", string(to.Bytes[10_000:][:4]))
	require.Equal(t, "words", string(to.Bytes[20_000:][:5]))
	require.Equal(t, "some words", string(to.Bytes[40_000:][:10]))
	require.Equal(t, "of the peer", string(from.Bytes[30_000:][:11]))
}

// TestConnectionWaits: what takes a buffer waits for one, and is not lost.
func TestConnectionWaits(t *testing.T) {
	e := pair(t, 10*time.Second, 0)
	_, err := e[0].Post([]Transfer{{ID: 1, Verb: WriteImmediate, Immediate: 7}})
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond) // it is refused, again and again
	n, err := e[0].sends.Poll(make([]Completion, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = e[1].Receive([]Buffer{{ID: 2}})
	require.NoError(t, err)
	require.Equal(t, uint32(7), completed(t, e[1].receives, 1)[0].Immediate)
	require.Equal(t, OK, completed(t, e[0].sends, 1)[0].Status)
}

// TestConnectionFull: what the device has no room for is not posted.
func TestConnectionFull(t *testing.T) {
	e := pair(t, 10*time.Second, 0)
	most := make([]Transfer, 1000)
	for i := range most {
		most[i] = Transfer{ID: uint64(i), Verb: WriteImmediate}
	}
	n, err := e[0].Post(most)
	require.Error(t, err)
	require.GreaterOrEqual(t, n, 16)
	require.Less(t, n, 1000)
}

// TestConnectionFails: a peer that is gone, and memory that it has not given, end a connection, and the first completion says why.
func TestConnectionFails(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		e := pair(t, 500*time.Millisecond, 4)
		require.NoError(t, e[1].Close())
		begin := time.Now()
		_, err := e[0].Post([]Transfer{{ID: 1, Verb: WriteImmediate}, {ID: 2, Verb: WriteImmediate}})
		require.NoError(t, err)
		done := completed(t, e[0].sends, 2)
		t.Logf("after %v: %v", time.Since(begin), done[0].Status)
		require.Equal(t, NoAnswer, done[0].Status)
		require.Equal(t, Flushed, done[1].Status)
		for _, c := range completed(t, e[0].receives, 4) {
			require.Equal(t, Flushed, c.Status)
		}
		_, err = e[0].Post([]Transfer{{ID: 3, Verb: WriteImmediate}})
		require.NoError(t, err)
		require.Equal(t, Flushed, completed(t, e[0].sends, 1)[0].Status)
	})
	t.Run("not given", func(t *testing.T) {
		e := pair(t, 10*time.Second, 1)
		_, err := e[0].Post([]Transfer{{
			ID: 1, Verb: Write, Local: e[0].memory.Address(0), LocalKey: e[0].memory.Key(), Bytes: 8,
			Remote: e[1].memory.Address(0), RemoteKey: e[1].memory.RemoteKey() + 1<<20,
		}})
		require.NoError(t, err)
		require.Equal(t, "remote access error", completed(t, e[0].sends, 1)[0].Status.String())
	})
}

// TestConnectWrongly: an address that no device has is refused.
func TestConnectWrongly(t *testing.T) {
	d, _ := devices(t)
	c, err := d[0].NewCompletions(4)
	require.NoError(t, err)
	defer c.Close()
	q, err := d[0].NewConnection(ConnectionOptions{Sends: c, Receives: c, Send: 1, Receive: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, q.Close()) }()
	for _, a := range []Address{{Number: 1 << 24, MTU: 1024}, {PSN: 1 << 24, MTU: 1024}, {MTU: 1000}, {}, {MTU: 8192}} {
		require.ErrorContains(t, q.Connect(a, time.Second, 0), "want 24 bits")
	}
}
