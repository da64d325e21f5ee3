package sys

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// wired returns the two ends of a connection over a cable of MTU 9000.
func wired(t *testing.T) (ns [2]*systest.Namespace, fd int, far *net.TCPConn) {
	ns = systest.Cable(t, 9000)
	ns[0].Unmerged(t, "v0")
	var ln net.Listener
	var err error
	ns[1].Do(func() { ln, err = net.Listen("tcp4", "10.9.0.2:0") })
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	var c net.Conn
	ns[0].Do(func() { c, err = net.Dial("tcp4", ln.Addr().String()) })
	require.NoError(t, err)
	accepted, err := ln.Accept()
	require.NoError(t, err)
	fd, err = Take(map[int]net.Conn{0: c}, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, accepted.Close())
		require.NoError(t, unix.Close(fd))
	})
	return ns, fd, accepted.(*net.TCPConn)
}

// look checks a connection for a while, or until it stalls.
func look(fd int, limit, most time.Duration) (err *StallError) {
	var s Stall
	for end := time.Now().Add(most); err == nil && time.Now().Before(end); systest.Pause(10 * time.Millisecond) {
		err = s.Check(fd, time.Now(), limit)
	}
	return err
}

func TestLargeSegmentsThatAreLostStall(t *testing.T) {
	ns, fd, far := wired(t)
	ns[1].DropLarger(t, 1500)
	_, err := unix.Write(fd, make([]byte, 100))
	require.NoError(t, err)
	_, err = far.Read(make([]byte, 100))
	require.NoError(t, err, "small ones pass")
	_, err = unix.Write(fd, make([]byte, 20000))
	require.NoError(t, err)
	stall := look(fd, 200*time.Millisecond, systest.Limit)
	require.NotNil(t, stall)
	require.Equal(t, 9000-20-20-12, stall.Segment, "MTU less headers and timestamps")
	require.GreaterOrEqual(t, stall.For, 200*time.Millisecond)

	ns[1].Heal(t)
	_, err = unix.Write(fd, make([]byte, 100))
	require.NoError(t, err)
	for got := 0; got < 20100; {
		n, err := far.Read(make([]byte, 1<<16))
		require.NoError(t, err)
		got += n
	}
	require.Nil(t, look(fd, 200*time.Millisecond, 500*time.Millisecond), "it goes on where the path is mended")
}

// TestPeerThatDoesNotReadIsNoStall fills a peer's window, as a rank does that waits for one that is
// late.
func TestPeerThatDoesNotReadIsNoStall(t *testing.T) {
	_, fd, far := wired(t)
	require.NoError(t, far.SetReadBuffer(1<<14))
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if _, err := unix.Write(fd, make([]byte, 1<<16)); err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			systest.Pause(time.Millisecond)
		}
	}
	require.Nil(t, look(fd, 200*time.Millisecond, 1500*time.Millisecond))
}
