package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestRoutedAddress has the host's address on lo, as where routing is done to the host, and no network at the stand-in
// address.
func TestRoutedAddress(t *testing.T) {
	n := systest.NewNamespace(t)
	n.IP(t, "link set lo up")
	n.IP(t, "link add va type veth peer name va9")
	n.IP(t, "link set va up")
	n.IP(t, "link set va9 up")
	n.IP(t, "addr add fe80::1/64 dev va nodad")
	n.IP(t, "addr add 10.5.0.1/32 dev lo")
	of := func() (text string) {
		n.Do(func() {
			if ifi, addrs := Uplink(Any); ifi != nil {
				text = fmt.Sprint(ifi.Name, addrs)
			}
		})
		return text
	}
	require.Equal(t, "lo[10.5.0.1]", of(), "no other address is of more than a link")
	n.IP(t, "route add blackhole 192.0.2.0/24")
	n.IP(t, "route add default src 10.5.0.1 via inet6 fe80::9 dev va")
	require.Equal(t, "va[10.5.0.1]", of())
	n.Do(func() {
		lo, err := net.InterfaceByName("lo")
		require.NoError(t, err)
		require.Equal(t, "[10.5.0.1]", fmt.Sprint(Addresses(lo, IPv4)), "rather than loopback's own")
		all, err := Devices("", Any)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "va 10.5.0.1", fmt.Sprint(all[0].Name, " ", all[0].Addr))
		require.Equal(t, "[10.5.0.1/32 0]", fmt.Sprint(Candidates(IPv4)))
	})
}

// TestBind has two interfaces in one network.
func TestBind(t *testing.T) {
	n := systest.NewNamespace(t)
	n.IP(t, "link set lo up")
	for i, name := range []string{"va", "vb"} {
		n.IP(t, "link add "+name+" type veth peer name "+name+"9")
		n.IP(t, "link set "+name+" up")
		n.IP(t, "link set "+name+"9 up")
		n.IP(t, fmt.Sprintf("addr add 10.1.0.%d/24 dev %s", i+1, name))
	}
	to := netip.MustParseAddr("10.1.0.9")
	n.Do(func() {
		for _, c := range []struct {
			name, from, to string
			answers        bool
			want           string
		}{
			{"va", "10.1.0.1", "10.1.0.9", true, "{10.1.0.1  }"},
			{"vb", "10.1.0.2", "10.1.0.9", true, "{10.1.0.2 vb }"},
			{"vb", "10.1.0.2", "10.1.0.1", true, "{10.1.0.2  }"},
			{"vb", "10.1.0.2", "10.1.0.9", false, "{invalid IP  leave by va, since that rank names no interface (MCAST_IFACE)}"},
			{"lo", "10.1.0.2", "10.1.0.9", true, "{10.1.0.2  }"},
		} {
			ifi, err := net.InterfaceByName(c.name)
			require.NoError(t, err)
			require.Equal(t, c.want, fmt.Sprint(Bind(ifi, netip.MustParseAddr(c.from), netip.MustParseAddr(c.to), c.answers)), c)
			require.Equal(t, c.name == "vb", Crossed(ifi), c.name)
		}
	})
	n.Do(func() {
		for from, want := range map[string]string{
			"10.1.0.1": "",
			"10.1.0.2": "what goes from 10.1.0.2 to 10.1.0.9 leaves by va, and vb has 10.1.0.2 (ip route get 10.1.0.9 from " +
				"10.1.0.2)",
			"127.0.0.1": "", "10.9.9.9": "",
		} {
			require.Equal(t, want, Elsewhere(netip.MustParseAddr(from), to), from)
		}
		require.Empty(t, Elsewhere(netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.1")), "to this host")
	})
	n.IP(t, "route add 10.2.0.0/24 dev va")
	n.Do(func() {
		vb, err := net.InterfaceByName("vb")
		require.NoError(t, err)
		b := Bind(vb, netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.2.0.9"), true)
		require.Equal(t, "leave by va, since no route leads there by vb", b.Elsewhere)
	})
	n.IP(t, "route add 10.3.0.0/24 nexthop via 10.1.0.8 dev va nexthop via 10.1.0.9 dev vb")
	n.Do(func() {
		for i, name := range []string{"va", "vb"} {
			ifi, err := net.InterfaceByName(name)
			require.NoError(t, err)
			from := netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)})
			for last := range byte(8) { // the kernel chooses by address
				to := netip.AddrFrom4([4]byte{10, 3, 0, last + 1})
				require.True(t, leadsTo(to, ifi), "%v by %s", to, name)
				require.Equal(t, Bound{From: from, Device: name}, Bind(ifi, from, to, true), "%v by %s", to, name)
				b := Bind(ifi, from, to, false)
				require.NotContains(t, b.Elsewhere, "leave by "+name)
				require.Contains(t, b.Elsewhere, "leave by v")
			}
		}
	})
	n.IP(t, "route add 10.1.0.0/24 dev vb table 9")
	n.IP(t, "rule add from 10.1.0.2 lookup 9")
	n.Do(func() {
		vb, err := net.InterfaceByName("vb")
		require.NoError(t, err)
		require.Equal(t, Bound{From: netip.MustParseAddr("10.1.0.2")}, Bind(vb, netip.MustParseAddr("10.1.0.2"), to, true),
			"a rule leads there")
	})
}
