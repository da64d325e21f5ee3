package gpudirect

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// random is as many bytes of no pattern.
func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func TestDMABuf(t *testing.T) {
	size := 16 * int(page)
	memory := systest.Memfd(t, int64(size))
	fd := systest.Udmabuf(t, memory, uint64(size))
	want := random(size)
	_, err := unix.Pwrite(memory, want, 0)
	require.NoError(t, err)

	for _, part := range [][2]int{{0, size}, {0, 1}, {size - 1, 1}, {int(page), int(page)},
		{int(page) + 13, 5*int(page) + 1}} {
		given, err := unix.Dup(fd)
		require.NoError(t, err)
		m, err := MapDMABuf(given, uint64(part[0]), part[1])
		require.NoError(t, err)
		require.NoError(t, unix.Close(given), "it stays the caller's")
		require.NoError(t, m.Begin(ReadWrite))
		require.True(t, bytes.Equal(want[part[0]:part[0]+part[1]], m.Bytes()))
		copy(want[part[0]:], random(part[1]))
		copy(m.Bytes(), want[part[0]:])
		require.NoError(t, m.End(ReadWrite))
		got := make([]byte, size)
		_, err = unix.Pread(memory, got, 0)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "written where it belongs, and nowhere else")
		require.ErrorIs(t, m.Begin(0), unix.EINVAL)
		require.NoError(t, m.Close())
	}
	for _, part := range []struct {
		offset uint64
		size   int
	}{{0, size + 1}, {uint64(size), 1}, {1 << 63, 1}, {^uint64(0), 2}, {0, 0}, {0, -1}} {
		_, err := MapDMABuf(fd, part.offset, part.size)
		require.ErrorContains(t, err, "allowed are 1 byte or more within its "+strconv.Itoa(size))
	}
	m, err := MapDMABuf(fd, 0, size)
	require.NoError(t, err)
	defer m.Close()
	throughSocket(t, m.Bytes())
}

// throughSocket sends from a mapping and receives into it, and checks that
// system calls that pin pages fail as the comment on Mapping says.
func throughSocket(t *testing.T, mapped []byte) {
	t.Helper()
	a, b := systest.Pair(t)
	move := func(from, to *net.TCPConn, out, in []byte) {
		written := make(chan error)
		go func() {
			_, err := from.Write(out)
			written <- err
		}()
		_, err := io.ReadFull(to, in)
		require.NoError(t, err)
		require.NoError(t, <-written)
	}
	want := bytes.Clone(mapped)
	got := make([]byte, len(want))
	move(a, b, mapped, got)
	require.True(t, bytes.Equal(want, got), "sent from the mapping")

	want = random(len(want))
	move(b, a, want, mapped)
	require.True(t, bytes.Equal(want, mapped), "received into the mapping")

	raw, err := a.SyscallConn()
	require.NoError(t, err)
	var sent int
	var failed error
	require.NoError(t, raw.Control(func(fd uintptr) {
		if failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); failed == nil {
			sent, failed = unix.SendmsgN(int(fd), mapped, nil, nil, unix.MSG_ZEROCOPY)
		}
	}))
	t.Logf("MSG_ZEROCOPY from the mapping: %d bytes, %v", sent, failed)
	if failed != nil {
		require.ErrorIs(t, failed, unix.EFAULT)
		return
	}
	_, err = io.ReadFull(b, got[:sent])
	require.NoError(t, err)
	require.True(t, bytes.Equal(want[:sent], got[:sent]), "a kernel that can pin it sends the right bytes")
}

func TestNotADMABuf(t *testing.T) {
	_, err := MapDMABuf(-1, 0, 1)
	require.ErrorIs(t, err, unix.EBADF)
	require.ErrorContains(t, err, "gpudirect: map DMA-BUF: descriptor -1: ")
	_, err = MapDMABuf(systest.Memfd(t, 4096), 0, 1)
	require.ErrorContains(t, err, "is not a DMA-BUF but /memfd:systest")
	file, err := os.Create(filepath.Join(t.TempDir(), "regular"))
	require.NoError(t, err)
	defer file.Close()
	_, err = MapDMABuf(int(file.Fd()), 0, 1)
	require.ErrorContains(t, err, "is not a DMA-BUF but "+file.Name())
}

// TestMapShared maps a memfd, as the rest of MapDMABuf is the same for it.
func TestMapShared(t *testing.T) {
	size := 4*int(page) + 100
	fd := systest.Memfd(t, int64(size))
	want := random(size)
	_, err := unix.Pwrite(fd, want, 0)
	require.NoError(t, err)
	offset := int(page) + 77
	m, err := mapShared(fd, uint64(offset), size-offset)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want[offset:], m.Bytes()))
	copy(want[offset:], random(size-offset))
	copy(m.Bytes(), want[offset:])
	got := make([]byte, size)
	_, err = unix.Pread(fd, got, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	require.ErrorIs(t, m.Begin(Read), unix.ENOTTY)
	require.ErrorIs(t, m.End(Write), unix.ENOTTY)
	own := m.fd
	require.NoError(t, m.Close())
	_, err = unix.FcntlInt(uintptr(own), unix.F_GETFD, 0)
	require.ErrorIs(t, err, unix.EBADF, "Close closes the duplicate")

	_, err = mapShared(fd, uint64(offset), size-offset+1)
	require.ErrorContains(t, err, strconv.Itoa(size-offset+1)+" bytes at offset "+strconv.Itoa(offset)+
		": allowed are 1 byte or more within its "+strconv.Itoa(size))

	reading, err := os.Open("/proc/self/fd/" + strconv.Itoa(fd))
	require.NoError(t, err)
	defer reading.Close()
	_, err = mapShared(int(reading.Fd()), 0, 1)
	require.ErrorIs(t, err, unix.EACCES)
	require.ErrorContains(t, err, "opened for reading only")

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	_, err = mapShared(pair[0], 0, 1)
	require.ErrorIs(t, err, unix.ESPIPE)
}

func TestMmapReason(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EINVAL: "its exporter does not let the CPU map it", unix.EOPNOTSUPP: "its exporter does not let the CPU map it",
		524:         "its exporter does not let the CPU map it",
		unix.ENOMEM: "this process may not map more memory (ulimit -v, vm.max_map_count)",
		unix.EIO:    "mmap failed",
	} {
		require.Equal(t, want, mmapReason(errno))
	}
}
