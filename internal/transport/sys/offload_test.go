package sys

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMergedSize(t *testing.T) {
	message := func(level, typ, size uint32) []byte {
		c := make([]byte, 32)
		binary.NativeEndian.PutUint64(c, uint64(unix.CmsgLen(4)))
		binary.NativeEndian.PutUint32(c[8:], level)
		binary.NativeEndian.PutUint32(c[12:], typ)
		binary.NativeEndian.PutUint32(c[16:], size)
		return c
	}
	for _, c := range []struct {
		name    string
		control []byte
		length  uint64
		total   int
		want    int
	}{
		{"merged", message(unix.IPPROTO_UDP, unix.UDP_GRO, 1440), 24, 5000, 1440},
		{"merged, says the kernel, in datagrams of nothing", message(unix.IPPROTO_UDP, unix.UDP_GRO, 0), 24, 5000, 5000},
		{"another control message", message(unix.IPPROTO_IP, unix.IP_TTL, 64), 24, 5000, 5000},
		{"no control message", message(unix.IPPROTO_UDP, unix.UDP_GRO, 1440), 0, 5000, 5000},
		{"empty datagram", nil, 0, 0, 1},
	} {
		require.Equal(t, c.want, MergedSize(&Msghdr{Controllen: c.length}, c.control, c.total), c.name)
	}
}
