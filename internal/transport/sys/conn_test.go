package sys

import (
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestTake(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	c, err := net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr)) // DialTCP's peer
	require.NoError(t, err)
	conns := map[int]net.Conn{5: c}
	fd, err := Take(conns, 5)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conns[5].Close()) })
	again, err := Take(conns, 5)
	require.NoError(t, err)
	require.Equal(t, fd, again)
	_, err = c.Write([]byte{1})
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = unix.Write(fd, []byte{1})
	require.NoError(t, err, "the connection goes on")
	n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = unix.Read(fd, make([]byte, 1))
	require.ErrorIs(t, err, unix.EAGAIN)
	n, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, tcpRTOMin)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return // Linux before 6.15
	}
	require.NoError(t, err)
	require.Less(t, n, 20000, "5 ms, and some timer ticks")
}

func TestPersist(t *testing.T) {
	a, b := systest.Pair(t)
	defer func() { require.NoError(t, errors.Join(a.Close(), b.Close())) }()
	raw, err := a.SyscallConn()
	require.NoError(t, err)
	Persist(a)
	var most, end int
	require.NoError(t, raw.Control(func(fd uintptr) {
		if most, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMax); err == nil {
			end, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		}
	}))
	if errors.Is(err, unix.ENOPROTOOPT) {
		return // Linux before 6.15
	}
	require.NoError(t, err)
	require.Equal(t, mostRTOMilli, most)
	require.Equal(t, giveUpMilli, end)
}
