package netdev

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestDefaultRouteAddr(t *testing.T) {
	n := systest.NewNamespace(t)
	n.IP(t, "link set lo up")
	address := func() (at string) {
		n.Do(func() { at = DefaultRouteAddr(Any).String() })
		return at
	}
	require.Equal(t, "invalid IP", address(), "loopback alone")
	n.IP(t, "link add va type veth peer name va9")
	n.IP(t, "addr add 10.1.0.1/24 dev va")
	require.Equal(t, "invalid IP", address(), "it is down")
	n.IP(t, "link set va up")
	n.IP(t, "link set va9 up")
	require.Equal(t, "10.1.0.1", address(), "the only one")
	n.IP(t, "link add vb type veth peer name vb9")
	n.IP(t, "addr add 10.2.0.1/24 dev vb")
	n.IP(t, "link set vb up")
	require.Equal(t, "invalid IP", address(), "which of two?")
	n.IP(t, "route add default via 10.2.0.9 dev vb")
	require.Equal(t, "10.2.0.1", address(), "that of the default route")
}

// TestAddresses has interfaces of one version, of both, and with addresses that do not do.
func TestAddresses(t *testing.T) {
	n := systest.NewNamespace(t)
	n.IP(t, "link set lo up")
	add := func(name string, addrs ...string) {
		n.IP(t, "link add "+name+" type veth peer name "+name+"9")
		for _, end := range []string{name, name + "9"} {
			n.IP(t, "link set "+end+" up addrgenmode none")
		}
		for _, a := range addrs {
			n.IP(t, "addr add "+a+" dev "+name)
		}
	}
	of := func(name string) (text string) {
		n.Do(func() {
			ifi, err := net.InterfaceByName(name)
			if err == nil {
				text = fmt.Sprint(Addresses(ifi, Any))
			}
		})
		return text
	}
	uplink := func(v Version) (text string) {
		n.Do(func() {
			if ifi, addrs := Uplink(v); ifi != nil {
				text = fmt.Sprint(ifi.Name, addrs)
			}
		})
		return text
	}
	require.Equal(t, "[127.0.0.1 ::1]", of("lo"))
	add("near", "fe80::9/64 nodad")
	require.Equal(t, "near[fe80::9%near]", uplink(Any), "there is no other")
	add("six", "fe80::1/64 nodad", "fd01::9/64 nodad preferred_lft 0", "fd01::1/64 nodad")
	require.Equal(t, "[fd01::1]", of("six"), "the other one is deprecated")
	require.Equal(t, "six[fd01::1]", uplink(Any))
	require.Empty(t, uplink(IPv4))
	add("both", "169.254.0.1/16", "10.1.0.1/24", "fe80::2/64 nodad", "fd02::1/64 nodad")
	require.Equal(t, "[10.1.0.1 fd02::1]", of("both"))
	add("four", "169.254.0.2/16", "fe80::3/64 nodad")
	require.Equal(t, "[169.254.0.2]", of("four"))
	require.Empty(t, uplink(Any), "which of them?")
	n.IP(t, "-6 route add default dev six")
	require.Equal(t, "six[fd01::1]", uplink(Any))
	n.IP(t, "route add default dev both src 10.1.0.1")
	require.Equal(t, "both[10.1.0.1 fd02::1]", uplink(Any), "IPv4's counts first")
	require.Equal(t, "six[fd01::1]", uplink(IPv6))
	n.IP(t, "link del six")
	n.IP(t, "-6 route add default dev both")
	require.Equal(t, "both[fd02::1]", uplink(IPv6))
}
