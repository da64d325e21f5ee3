package ibverbs

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// dmabuf is memory behind a DMA-BUF, which stands for a GPU's, registered with a device.
type dmabuf struct {
	fd     int
	seen   []byte // stands for the GPU's addresses
	device *Device
	cache  *gpudirect.Cache
	held   *gpudirect.Registration
	key    uint32
}

// exported registers so many bytes behind a udmabuf, or more. Soft-RoCE registers no DMA-BUF, and says so: then the
// device is given a mapping of the memory that the DMA-BUF was made of.
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
	m.cache = gpudirect.NewCache(exporting{Registrar{Device: d, Access: a, Invalidated: true}, export},
		gpudirect.Limits{Count: 8, Bytes: 1 << 30})
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

// look calls f with the memory as the holder of the DMA-BUF sees it.
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

// TestDMABuf: the holder of a DMA-BUF finds in its memory the datagrams that a device has received there.
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

// TestDMABufByWrites: a peer writes straight to the memory behind a DMA-BUF. Its completion says that the bytes are on
// their way past the CPU; a read of a byte of them, by a connection of the device to itself, is answered behind them,
// so that a GPU that is told afterwards finds them.
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
		ID: 2, Verb: Read, Local: flushed.Address(0), LocalKey: flushed.Key(), Bytes: 1, Remote: to.Address(at + bytes - 1),
		RemoteKey: to.RemoteKey(),
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
		ID: 3, Verb: Write, Local: e[0].memory.Address(0), LocalKey: e[0].memory.Key(), Bytes: 8, Remote: m.address(),
		RemoteKey: m.key,
	}})
	require.NoError(t, err)
	require.Equal(t, "remote access error", completed(t, e[0].sends, 1)[0].Status.String())
}
