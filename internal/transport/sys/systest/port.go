package systest

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ReservePort returns an address of 127.0.0.1 at which nobody listens. The kernel gives its
// port to nobody else until the test ends, but a listener that names the port can have it, as
// Go's listeners do (SO_REUSEADDR): the socket that holds it is bound and never listens.
func ReservePort(t testing.TB) netip.AddrPort {
	t.Helper()
	at, err := reserve(0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(at.fd) })
	return at.addr
}

// ReservePortAfter listens on a port of 127.0.0.1 and reserves the next one.
func ReservePortAfter(t testing.TB) (listener net.Listener, next netip.AddrPort) {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		at, err := reserve(ln.Addr().(*net.TCPAddr).Port + 1)
		if err != nil {
			_ = ln.Close() // somebody has the next one
			continue
		}
		t.Cleanup(func() {
			_ = ln.Close()
			_ = unix.Close(at.fd)
		})
		return ln, at.addr
	}
	require.Fail(t, "no two ports in a row are free")
	return nil, netip.AddrPort{}
}

// reserved is a socket that holds a port.
type reserved struct {
	fd   int
	addr netip.AddrPort
}

// reserve binds a port, or any with 0.
func reserve(port int) (r reserved, err error) {
	r.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return r, err
	}
	local := [4]byte{127, 0, 0, 1}
	if err = unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.Bind(r.fd, &unix.SockaddrInet4{Port: port, Addr: local})
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(r.fd)
	}
	if err != nil {
		_ = unix.Close(r.fd)
		return r, err
	}
	r.addr = netip.AddrPortFrom(netip.AddrFrom4(local), uint16(name.(*unix.SockaddrInet4).Port))
	return r, nil
}

// RequireIPv6 skips a test where this machine has no IPv6.
func RequireIPv6(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6: ", err)
	}
	require.NoError(t, l.Close())
}
