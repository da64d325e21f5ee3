package shm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// small wraps often.
func small(size int) Layout {
	return Layout{Size: size, Chunk: 100, Slots: 3, Stream: page, Message: page}
}

// regions maps one region once for each rank, all in this process.
func regions(t testing.TB, lay Layout) []*Region {
	srv, err := Serve(t.Context(), testJob, testKey, lay)
	require.NoError(t, err)
	defer srv.Close()
	all := make([]*Region, lay.Size)
	for r := range all {
		all[r], err = attach(t.Context(), srv.Address(), testJob, testKey, r, lay.Size)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, all[r].Close()) })
	}
	return all
}

func TestOpenRefusesWhatIsNoWindow(t *testing.T) {
	lay := small(2)
	patched := func(at int, value byte) int {
		fd, err := create(testJob, lay)
		require.NoError(t, err)
		_, err = unix.Pwrite(fd, []byte{value}, int64(at))
		require.NoError(t, err)
		return fd
	}
	plain, err := unix.MemfdCreate("plain", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	empty, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	_, err = unix.FcntlInt(uintptr(empty), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	require.NoError(t, err)
	for _, c := range []struct {
		fd, size int
		want     string
	}{
		{plain, 2, "its size is not sealed"},
		{empty, 2, "it has 0 bytes"},
		{patched(0, 'x'), 2, "magic "},
		{patched(8, 9), 2, "version 9, this rank has 2"},
		{patched(16, 0), 2, "this rank is in 0x1122334455667788"},
		{patched(28, 0), 2, "shm: slots of a ring: 0, allowed are 1 to 1024"},
		{patched(33, 0x20), 2, "bytes, its header says"},
		{patched(0, 'm'), 3, "it is for 2 ranks, this rank expects 3"},
	} {
		_, err := open(c.fd, testJob, 0, c.size)
		assert.ErrorIs(t, err, errHeader)
		assert.ErrorContains(t, err, c.want)
		assert.NoError(t, unix.Close(c.fd))
	}
}

// TestCreateAgain has create fail at each of its system calls on the new region: none is left open,
// which would keep the memory.
func TestCreateAgain(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	before := systest.Descriptors(t)
	for call, e := range map[uint32]unix.Errno{
		unix.SYS_FALLOCATE: unix.ENOSPC, unix.SYS_PWRITE64: unix.EFBIG, unix.SYS_FCNTL: unix.EPERM,
	} {
		var err error
		systest.InSandbox(t, e, []uint32{call}, func() { _, err = create(testJob, small(2)) })
		require.ErrorIs(t, err, e)
		require.Equal(t, before, systest.Descriptors(t))
	}
	fd, err := create(testJob, small(2))
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
}

func TestWindowCannotShrink(t *testing.T) {
	fd, err := create(testJob, small(2))
	require.NoError(t, err)
	defer unix.Close(fd)
	assert.ErrorIs(t, unix.Ftruncate(fd, page), unix.EPERM)
	assert.ErrorIs(t, unix.Ftruncate(fd, 1<<30), unix.EPERM)
}

func TestCloseInAnyOrder(t *testing.T) {
	w := regions(t, small(2))
	require.NoError(t, w[0].Gather().Close())
	assert.Equal(t, 3, w[0].Streams().Send(1, []byte("abc")), "streams outlive the gather")
	assert.Equal(t, "abc", string(w[1].Streams().Peek(0, 10)))
	w[0].Gather().Wake() // no effect, and no fault
	require.NoError(t, w[0].Streams().Close())
	w[0].Streams().Wake()
	w[0].Gather().Wake()
	require.NoError(t, w[0].Close(), "closing again does nothing")
	assert.EqualValues(t, 3, w[0].Streams().Stats().SentBytes)
}
