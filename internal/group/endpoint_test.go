package group

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// longest are the longest IPv4 and IPv6 addresses.
var longest = []netip.Addr{netip.MustParseAddr("255.255.255.254"),
	netip.MustParseAddr("fd12:3456:789a:bcde:1234:5678:9abc:def0")}

// lengthy is a host with names and addresses of the greatest length.
type lengthy struct{ hostnet.Kernel }

func (lengthy) Host() string {
	return "01234567-89ab-cdef-0123-456789abcdef/4294967295/" + longest[1].String()
}

func (lengthy) Name() string { return hostnet.PlainName(strings.Repeat("n", 300)) }

func (lengthy) Uplink(string, netdev.Version) (*net.Interface, []netip.Addr, error) {
	return nil, longest, nil
}

func (lengthy) Candidates(netdev.Version) []netdev.Candidate {
	all := make([]netdev.Candidate, netdev.MostCandidates)
	for i := range all {
		all[i] = netdev.Candidate{Net: netip.PrefixFrom(longest[1], 128), Mbps: 1<<31 - 1}
	}
	return all
}

// lengthySettings are as long as they get, but for MCAST_IFACE.
func lengthySettings(t *testing.T) config.Settings {
	t.Helper()
	s, err := config.Load(nil, map[string]string{
		"MCAST_FABRIC": "udp", "MCAST_TIMEOUT": "59m59.999999999s", "MCAST_FAMILY": "6", "MCAST_MULTICAST": "require",
		"MCAST_NODES": "off",
		"MCAST_GROUP": "ff15:3456:789a:bcde:1234:5678:9abc:def0", "MCAST_PORT": "65535", "MCAST_CHAINS": "256",
		"MCAST_SUBGROUPS": "16",
		"MCAST_CHUNK":     "65475", "MCAST_WINDOW": "1073741823", "MCAST_EAGER": "131071", "MCAST_OUTPUTS": "549755813887",
		"MCAST_SWITCH_MODE": "fast",
		"MCAST_SECRET":      strings.Repeat("s", 64), "MCAST_ENCRYPT": "1", "MCAST_CHECKSUM": "crc32c",
		"MCAST_TOPOLOGY": strings.Repeat("t", 128), "MCAST_SWITCH": strings.Repeat("h:1,", 1000) + "h:1",
	})
	require.NoError(t, err)
	defaults := config.Default()
	for i, at := range defaults.Alike() {
		require.NotEqual(t, at, s.Alike()[i], "a setting is at its default")
	}
	return s
}

// TestLongestBlob: what a rank tells the others has a bound, and one of half as much would not do.
func TestLongestBlob(t *testing.T) {
	s := lengthySettings(t)
	for _, names := range []string{"", "e0,e1,e2,e3,e4,e5,e6,e7"} {
		require.NoError(t, s.Set("MCAST_IFACE", names))
		e, err := Open(Options{Rank: MaxRanks - 1, Size: MaxRanks, Settings: s, Network: lengthy{}})
		require.NoError(t, err)
		e.Close()
		t.Logf("MCAST_IFACE=%s: %d bytes", names, len(e.Blob()))
		require.LessOrEqual(t, len(e.Blob()), MaxBlob)
		require.Greater(t, len(e.Blob()), MaxBlob/2)
	}
}

// TestBlobOfDefaults: settings that nobody changed are not told.
func TestBlobOfDefaults(t *testing.T) {
	e, err := Open(Options{Size: 1, Settings: config.Default()})
	require.NoError(t, err)
	defer e.Close()
	require.NotContains(t, string(e.Blob()), "MCAST_")
}

// TestTooMuchToTell: a rank does not start that would tell more than the others make room for.
func TestTooMuchToTell(t *testing.T) {
	s := config.Default()
	s.Topology = strings.Repeat("t", MaxBlob) // which Load does not let pass
	_, err := Open(Options{Size: 1, Settings: s})
	require.ErrorContains(t, err, "rank 0 has ")
	require.ErrorContains(t, err,
		fmt.Sprintf("bytes to tell the others, of its host's name, its addresses and MCAST_TOPOLOGY; allowed are %d",
			MaxBlob))
}

// TestBlobNamesTheCommit of the build.
func TestBlobNamesTheCommit(t *testing.T) {
	e, err := Open(Options{Size: 1, Settings: config.Default()})
	require.NoError(t, err)
	defer e.Close()
	var said team.Blob
	require.NoError(t, json.Unmarshal(e.Blob(), &said))
	require.Equal(t, version.Commit(), said.Commit)
}

// TestJoinOnce: an endpoint joins once, since the counters of its seals must not begin again.
func TestJoinOnce(t *testing.T) {
	eps, blobs := openAll(t, 2, withSecret)
	groups := make([]*Group, 2)
	each(t, 2, func(r int) (err error) {
		groups[r], err = eps[r].Join(t.Context(), blobs)
		return err
	})
	_, err := eps[0].Join(t.Context(), blobs)
	require.ErrorContains(t, err, "used up")
	each(t, 2, func(r int) error { return groups[r].Close() })
}
