package netdev

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestHostOfAClone changes the address of a host, and nothing else: that is how two virtual
// machines differ that were resumed from one snapshot.
func TestHostOfAClone(t *testing.T) {
	n := systest.NewNamespace(t)
	host := func() (id string) {
		n.Do(func() { id = HostID() })
		return id
	}
	nowhere := host()
	n.IP(t, "link add va type veth peer name va9")
	n.IP(t, "addr add 10.1.0.1/24 dev va")
	n.IP(t, "link set va up")
	n.IP(t, "link set va9 up")
	original := host()
	require.True(t, SameHost(original, host()))
	require.True(t, SameHost(original, nowhere), "its link was not up yet")
	n.IP(t, "addr del 10.1.0.1/24 dev va")
	n.IP(t, "addr add 10.1.0.2/24 dev va")
	require.False(t, SameHost(original, host()))
}

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"boot/1/10.0.0.1", "boot/1/10.0.0.1", true},
		{"boot/1/", "boot/1/10.0.0.1", true},
		{"boot/1/10.0.0.2", "boot/1/10.0.0.1", false},
		{"boot/2/10.0.0.1", "boot/1/10.0.0.1", false},
		{"else/1/10.0.0.1", "boot/1/10.0.0.1", false},
		{"", "", true},
	} {
		require.Equal(t, c.same, SameHost(c.a, c.b), "%q, %q", c.a, c.b)
		require.Equal(t, c.same, SameHost(c.b, c.a), "%q, %q", c.b, c.a)
	}
}

func TestDifferentUsers(t *testing.T) {
	me := UserID()
	require.False(t, DifferentUsers(me, me))
	require.True(t, DifferentUsers(me, "1"+me))
	for _, c := range []struct {
		a, b      string
		different bool
	}{
		{"0/1", "1000/1", true},
		{"0/1", "0/1", false},
		{"0/1", "1000/2", false}, // perhaps 0 there is 1000 here
		{"0/", "1000/", false},   // nobody says in which namespace
		{"", "1000/1", false},
	} {
		require.Equal(t, c.different, DifferentUsers(c.a, c.b), "%q, %q", c.a, c.b)
		require.Equal(t, c.different, DifferentUsers(c.b, c.a), "%q, %q", c.b, c.a)
	}
}
