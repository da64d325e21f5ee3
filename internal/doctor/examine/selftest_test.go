package examine

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverAnAddressOfTheLink has sockets that need a zone to reach it.
func TestOverAnAddressOfTheLink(t *testing.T) {
	all, err := net.Interfaces()
	require.NoError(t, err)
	for _, ifi := range all {
		own, err := ifi.Addrs()
		require.NoError(t, err)
		for _, a := range own {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || !p.Addr().Is6() || !p.Addr().IsLinkLocalUnicast() {
				continue
			}
			at := netip.AddrPortFrom(p.Addr().WithZone(ifi.Name), 0)
			require.NoError(t, echoTCP(at))
			require.NoError(t, echoUDP(at))
			return
		}
	}
	t.Skip("no interface here has an IPv6 address of its link")
}
