package fabrics

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// TestWhyUnheard: a reason is said where it was seen, and else none.
func TestWhyUnheard(t *testing.T) {
	n := systest.NewNamespace(t)
	for _, name := range []string{"va", "vb"} {
		n.IP(t, "link add "+name+" type veth peer name "+name+"9")
		n.IP(t, "link set "+name+"9 up")
		n.IP(t, "link set "+name+" up")
	}
	n.IP(t, "addr add 10.1.0.1/24 dev va")
	n.IP(t, "addr add 10.1.0.2/24 dev vb")
	n.Do(func() {
		vb, err := net.InterfaceByName("vb")
		require.NoError(t, err)
		o := udp.Options{
			Rank: 1, TTL: 1, Interface: vb,
			Sources: []netip.Addr{netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("10.1.0.2")},
		}
		heard, own := [][2]int{{1, 0}}, [][2]int{{0, 1}}
		require.Empty(t, whyUnheard(&o, own), "nothing is wrong here")
		require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0o600))
		require.Contains(t, whyUnheard(&o, own), "rp_filter=2 net.ipv4.conf.vb.rp_filter=2")
		require.Empty(t, whyUnheard(&o, heard), "it is another rank that does not hear")
		o.TTL = 0
		require.Equal(t, "MCAST_TTL=0 keeps multicast on each host: unset it", whyUnheard(&o, own))
	})
	n.IP(t, "link set vb down")
	n.Do(func() {
		o := udp.Options{Rank: 1, TTL: 1, Interface: &net.Interface{Name: "vb"}}
		require.Contains(t, whyUnheard(&o, nil), "the interface vb of rank 1 is gone or down")
	})
}
