package batch

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDropped: the kernel counts datagrams for which the socket has no room, and
// not those it holds.
func TestDropped(t *testing.T) {
	fd, err := Open(unix.AF_INET)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, Set(fd, Option{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, 1, ""}))
	at, err := Sockaddr(netip.MustParseAddrPort("127.0.0.1:0"))
	require.NoError(t, err)
	require.NoError(t, unix.Bind(fd, at))
	here, err := unix.Getsockname(fd)
	require.NoError(t, err)
	require.Zero(t, Dropped(fd))
	const sent = 100
	for range sent {
		require.NoError(t, unix.Sendto(fd, make([]byte, 1000), 0, here))
	}
	received := 0
	for ; ; received++ {
		if _, _, err := unix.Recvfrom(fd, make([]byte, 1000), 0); err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			break
		}
	}
	require.Equal(t, sent, received+Dropped(fd))
	require.Less(t, received, sent)
	require.Zero(t, Dropped(-1), "nothing is known of it")
}
