package netdev

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestMemoReadsAgainAfterAChange: of links, addresses and routes, and only of the namespace that it listens in.
func TestMemoReadsAgainAfterAChange(t *testing.T) {
	n := systest.NewNamespace(t)
	n.IP(t, "link set lo up")
	n.IP(t, "link add va type veth peer name va9")
	n.IP(t, "link set va9 up")
	m := Memo[string, int]{source: new(changes)}
	reads := 0
	get := func() int {
		return m.Get("key", func() (int, bool) { reads++; return reads, true })
	}
	n.Do(func() { require.Equal(t, get(), get(), "nothing has changed") })
	t.Cleanup(func() { require.NoError(t, unix.Close(m.source.fd)) })
	for _, change := range []string{
		"link set va up", "addr add 10.1.0.1/24 dev va", "route add 10.9.0.0/24 via 10.1.0.9", "link set va mtu 1400",
		"addr del 10.1.0.1/24 dev va",
		"addr add 2001:db8:1::1/64 dev va nodad", "link del va",
	} {
		var before int
		n.Do(func() { before = get() })
		n.IP(t, change)
		n.Do(func() { require.Greater(t, get(), before, change) })
	}
	require.NotEqual(t, get(), get(), "elsewhere it does not listen")
}

func TestMemoKeepsNoFailures(t *testing.T) {
	var m Memo[string, int]
	reads := 0
	for range 2 {
		require.Zero(t, m.Get("key", func() (int, bool) { reads++; return 0, false }))
	}
	require.Equal(t, 2, reads)
}
