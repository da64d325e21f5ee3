package netdev

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestDefaultRouteAddr(t *testing.T) {
	n := systest.NewNamespace(t)
	n.IP(t, "link set lo up")
	address := func() (at string) {
		n.Do(func() { at = DefaultRouteAddr().String() })
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
