package config

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAlike: the settings that must be alike stand in the order of the table, by their defaults.
func TestAlike(t *testing.T) {
	s := Default()
	at := -1
	for _, of := range s.Alike() {
		i := slices.IndexFunc(table, func(v Variable) bool { return v.Name == of.Name })
		require.Greater(t, i, at, of.Name)
		at = i
		changed := s
		require.NoError(t, changed.Set(of.Name, of.Value), "a value in the variable's own syntax")
		require.Equal(t, s, changed, of.Name)
	}
}

func TestAgreed(t *testing.T) {
	s := Default()
	require.Empty(t, s.Agreed())
	s.Outputs, s.Fabric, s.Timeout, s.TTL = 1<<20, "udp", time.Minute, 3
	s.Group = netip.MustParseAddr("ff15::1:0")
	require.Equal(t, "MCAST_FABRIC=udp MCAST_TIMEOUT=1m0s MCAST_GROUP=ff15::1:0 MCAST_OUTPUTS=1048576", s.Agreed())
}

func TestDifferences(t *testing.T) {
	require.Empty(t, Differences("", ""))
	require.Empty(t, Differences("MCAST_PORT=5000 MCAST_EAGER=0", "MCAST_EAGER=0 MCAST_PORT=5000"))
	require.Empty(t, Differences("MCAST_EAGER=65536", ""), "the default, spelled")
	require.Equal(t, []Difference{
		{Setting{"MCAST_PORT", "5000"}, Setting{"MCAST_PORT", "0"}},
		{Setting{"MCAST_EAGER", "65536"}, Setting{"MCAST_EAGER", "0"}},
	}, Differences("MCAST_PORT=5000", "MCAST_EAGER=0"))
}
