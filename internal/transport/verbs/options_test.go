package verbs

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// TestRefused: what RDMA does not do here is refused before any device is looked for, and the connections stay the
// caller's.
func TestRefused(t *testing.T) {
	for name, row := range map[string]struct {
		change func(o *udp.Options)
		says   string
		here   bool // a fault of the machine or of settings, not of the caller
	}{
		"IPv6": {func(o *udp.Options) { o.Group = netip.MustParseAddr("ff15::7") }, "group ff15::7: want one of IPv4",
			true},
		"unicast": {func(o *udp.Options) { o.Group = netip.MustParseAddr("10.0.0.1") }, "group 10.0.0.1: want one of IPv4",
			true},
		"rails":      {func(o *udp.Options) { o.Rails = []udp.Rail{{}} }, "several interfaces", true},
		"no address": {func(o *udp.Options) { o.Sources = nil }, "addresses of 0 ranks: want all 2", false},
		"interface":  {func(o *udp.Options) { o.Interface = nil }, "no interface given", false},
		"chunk":      {func(o *udp.Options) { o.Chunk = 8 }, "chunk of 8 bytes: want 64 at least", false},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := net.Pipe()
			defer func() { _, _ = one.Close(), other.Close() }()
			o := udp.Options{
				Rank: 1, Size: 2, Chunk: 1024, Port: 9, Group: netip.MustParseAddr("239.1.2.3"),
				Interface: &net.Interface{Index: 1, Name: "x"},
				Sources:   []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
				Conns:     map[int]net.Conn{0: one},
			}
			row.change(&o)
			_, err := Open(o)
			require.ErrorContains(t, err, row.says)
			require.Equal(t, map[int]net.Conn{0: one}, o.Conns)
			if row.here {
				require.ErrorIs(t, err, fabric.ErrUnavailable)
			}
		})
	}
}
