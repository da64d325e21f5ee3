package acceptor

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// long has the silent heard where nobody is to be closed for it.
var long = PatienceFor(time.Hour, false)

// serve accepts connections that open with the byte 1, and sends them to the channel.
func serve(t *testing.T, patience Patience) (address string, guests chan net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	guests = make(chan net.Conn, 2*limit)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ln, patience, takeOne(guests))
	}()
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		<-ended
	})
	return ln.Addr().String(), guests
}

func takeOne(guests chan<- net.Conn) func(net.Conn, func() bool) {
	return func(c net.Conn, proven func() bool) {
		var b [1]byte
		if _, err := io.ReadFull(c, b[:]); err == nil && b[0] == 1 && proven() {
			guests <- c
		}
	}
}

func dial(t *testing.T, address string, text ...byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp4", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Write(text)
	require.NoError(t, err)
	return c
}

// hungUp waits until the peer closes a connection.
func hungUp(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(systest.Deadline()))
	_, err := c.Read(make([]byte, 1))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Error(t, err)
}

// TestStrangersHoldFewDescriptors connects many that say nothing: few are kept, and who greets
// is heard at once.
func TestStrangersHoldFewDescriptors(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	address, guests := serve(t, PatienceFor(10*time.Second, false)) // as old as a part of that, one makes room
	before := len(systest.Descriptors(t))
	const strangers = 400
	most := 0
	for i := range strangers {
		dial(t, address)
		if i%20 == 0 {
			most = max(most, len(systest.Descriptors(t))-before-(i+1))
		}
	}
	require.LessOrEqual(t, most, limit)
	dial(t, address, 1)
	require.NoError(t, (<-guests).Close())
}

func TestSilentAndWrongAreClosed(t *testing.T) {
	address, guests := serve(t, PatienceFor(Plain, false))
	hungUp(t, dial(t, address, 7))
	hungUp(t, dial(t, address))
	require.Empty(t, guests)
}

// TestCrowd has more than the limit come at once, all with a greeting: each is taken.
func TestCrowd(t *testing.T) {
	address, guests := serve(t, long)
	for range 2 * limit {
		dial(t, address, 1)
	}
	for range 2 * limit {
		require.NoError(t, (<-guests).Close())
	}
}

// TestSilentMakeRoomFirst has silent ones keep coming while many are in the middle of their greetings, which is what a
// stranger does where ranks prove a secret: they close none of those, and keep nobody out.
func TestSilentMakeRoomFirst(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	begun, guests, ended := make(chan bool, 4*limit), make(chan net.Conn, limit), make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ln, Patience{Silent: PatienceFor(Plain, true).Silent, Greeting: time.Hour},
			func(c net.Conn, proven func() bool) {
				begun <- true
				if _, err := io.ReadFull(c, make([]byte, 2)); err == nil && proven() {
					guests <- c
				}
			})
	}()
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		<-ended
	})
	taken := func(what string) {
		c := systest.Receive(t, guests, what)
		require.NoError(t, c.Close())
	}
	var slow []net.Conn
	for range limit - 2 {
		slow = append(slow, dial(t, ln.Addr().String(), 1))
		<-begun
	}
	for range 20 {
		dial(t, ln.Addr().String())
	}
	dial(t, ln.Addr().String(), 1, 2)
	taken("who greets at once is kept out by the silent")
	for _, c := range slow {
		_, err := c.Write([]byte{2})
		require.NoError(t, err)
		taken("who has begun is closed for the silent")
	}
}

// TestPatienceFor: a secret gives more time to connections that have begun to prove it, not to silent ones.
func TestPatienceFor(t *testing.T) {
	for _, plain := range []time.Duration{Plain, 5 * time.Second} {
		require.Equal(t, Patience{Silent: plain, Greeting: plain}, PatienceFor(plain, false))
		require.Equal(t, Patience{Silent: plain, Greeting: proof}, PatienceFor(plain, true))
	}
}

// flaky is a listener that has no descriptor at first.
type flaky struct {
	net.Listener
	failures int
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.failures--; f.failures >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return f.Listener.Accept()
}

func TestAcceptIsTriedAgain(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	guests := make(chan net.Conn, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(&flaky{ln, 3}, long, takeOne(guests))
	}()
	dial(t, ln.Addr().String(), 1)
	require.NoError(t, (<-guests).Close())
	require.NoError(t, ln.Close())
	<-ended
}

// TestClosingEndsTheSilent closes the listener: connections that have not greeted are closed at once.
func TestClosingEndsTheSilent(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Serve(ln, long, takeOne(nil))
	}()
	c := dial(t, ln.Addr().String())
	systest.Pause(50 * time.Millisecond) // it is accepted meanwhile, or never
	require.NoError(t, ln.Close())
	<-ended
	hungUp(t, c)
}

// TestBegunAndNotHeard: the oldest of too many has begun, and its goroutine waits for a core. It stays, and the next of
// them makes room.
func TestBegunAndNotHeard(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	s := pendingConns{Patience: Patience{Silent: time.Nanosecond, Greeting: time.Hour}, left: make(chan struct{}, 1)}
	defer s.closeAll()
	accept := func(text ...byte) net.Conn {
		dial(t, ln.Addr().String(), text...)
		conn, err := ln.Accept()
		require.NoError(t, err)
		return conn
	}
	begun := s.enter(accept(1))
	awaitFirst(begun.Conn)
	close(begun.ended)
	for len(s.all) < limit-1 {
		close(s.enter(accept()).ended)
	}
	next := s.all[1]
	systest.Pause(time.Millisecond) // all are due
	s.enter(accept())
	require.Contains(t, s.all, begun)
	require.NotContains(t, s.all, next)
}
