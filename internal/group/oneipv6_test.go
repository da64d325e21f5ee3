package group

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestOneHostOfIPv6: what does not leave the host takes IPv4, for lo has no other multicast.
func TestOneHostOfIPv6(t *testing.T) {
	systest.RequireIPv6(t)
	g := world(t, 2, func(s *config.Settings) { s.Fabric, s.Family = "udp", "6" })
	require.Equal(t, "127.0.0.1", g[0].plan.Addrs[0].Addr().String())
	all := [2][]byte{make([]byte, 2000), make([]byte, 2000)}
	each(t, 2, func(r int) error { return g[r].Allgather(bytes.Repeat([]byte{byte(r + 1)}, 1000), all[r]) })
	want := append(bytes.Repeat([]byte{1}, 1000), bytes.Repeat([]byte{2}, 1000)...)
	require.Equal(t, [2][]byte{want, want}, all)
}
