package sys_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestMarkOnTheWire: what leaves by a connection carries its class, of either version of IP, also
// where a socket of IPv6 carries IPv4.
func TestMarkOnTheWire(t *testing.T) {
	ns := systest.Cable(t, 1500)
	for _, c := range []struct{ listen, dial string }{
		{"10.9.0.2:0", "10.9.0.2"}, {":0", "10.9.0.2"}, {":0", "fd09::2"},
	} {
		t.Run(fmt.Sprintf("%s from %s", c.dial, c.listen), func(t *testing.T) {
			var l net.Listener
			var wire int
			var err, capture error
			ns[1].Do(func() {
				l, err = net.Listen("tcp", c.listen)
				wire, capture = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC,
					int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})))
			})
			require.NoError(t, err)
			require.NoError(t, capture)
			defer func() { require.NoError(t, unix.Close(wire)) }()
			port := l.Addr().(*net.TCPAddr).Port
			conns := map[int]net.Conn{}
			ns[0].Do(func() {
				conns[1], err = net.DialTimeout("tcp", net.JoinHostPort(c.dial, fmt.Sprint(port)), 10*time.Second)
			})
			require.NoError(t, err)
			conns[0], err = l.Accept()
			require.NoError(t, err)
			require.NoError(t, l.Close())
			for rank, dscp := range []int{46, 8} {
				fd, err := sys.Take(conns, rank)
				require.NoError(t, err)
				defer func() { require.NoError(t, unix.Close(fd)) }()
				require.NoError(t, sys.Mark(fd, 0), "the default")
				require.NoError(t, sys.Mark(fd, dscp))
				_, err = unix.Write(fd, []byte("marked"))
				require.NoError(t, err)
			}
			seen := map[int]bool{}
			require.NoError(t, unix.SetsockoptTimeval(wire, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
			for b := make([]byte, 2000); !seen[46] || !seen[8]; {
				n, _, err := unix.Recvfrom(wire, b, 0)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				require.NoError(t, err, "seen: %v", seen)
				if p := b[:n]; carries(p, "marked") {
					seen[dscpOf(p)] = true
				}
			}
			require.Len(t, seen, 2, "%v", seen)
		})
	}
}

// carries reports whether an IP packet ends with some text.
func carries(p []byte, text string) bool {
	return len(p) > 20+len(text) && string(p[len(p)-len(text):]) == text
}

// dscpOf returns the class of an IP packet.
func dscpOf(p []byte) int {
	if p[0]>>4 == 4 {
		return int(p[1] >> 2)
	}
	return int(binary.BigEndian.Uint16(p)>>4&0xff) >> 2
}
