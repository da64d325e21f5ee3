package team

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestLoopbackReachesNobodyElse has a rank on a host that knows no interface but loopback.
func TestLoopbackReachesNobodyElse(t *testing.T) {
	blobs := [][]byte{
		fmt.Appendf(nil, `{"v":%d,"r":0,"n":2,"h":"a/1","a":"10.0.0.1","p":7000,"k":"1","j":"1","m":1500,"b":212992}`,
			spokenVersion),
		fmt.Appendf(nil, `{"v":%d,"r":1,"n":2,"h":"b/1","a":"127.0.0.1","p":7000,"k":"1","j":"1","m":1500,"b":212992}`,
			spokenVersion),
	}
	o := Self{Rank: 0, Size: 2, Settings: config.Default(), Version: spokenVersion}
	_, err := New(o, blobs)
	require.ErrorContains(t, err,
		"rank 1 (host b/1) only knows itself as 127.0.0.1: it has no default route, so set MCAST_IFACE")
	asked := bytes.Replace(blobs[1], []byte(`"k":`), []byte(`"i":true,"hn":"node7","k":`), 1)
	_, err = New(o, [][]byte{blobs[0], asked})
	require.ErrorContains(t, err,
		"rank 1 (host node7) only knows itself as 127.0.0.1: its MCAST_IFACE reaches no other host")
	blobs[1] = bytes.Replace(blobs[1], []byte("127.0.0.1"), []byte("10.0.0.2"), 1)
	a, err := New(o, blobs)
	require.NoError(t, err)
	require.Equal(t, "udp", a.Fabric)
}

// TestChainsOfItself is what MCAST_CHAINS=0 takes.
func TestChainsOfItself(t *testing.T) {
	for _, c := range []struct {
		p      Plan
		window int
		want   int
	}{
		{Plan{Size: 8}, 1000, 8},
		{Plan{Size: 8}, 20, 5},
		{Plan{Size: 8}, 3, 1},
		{Plan{Size: 500}, 10000, maxChains},
		{Plan{Size: 8, OneHost: true}, 1000, 1},
		{Plan{Size: 8, OneHost: true, Settings: config.Settings{Chains: 4}}, 1000, 4},
		{Plan{Size: 8, Settings: config.Settings{Chains: 2}}, 1000, 2},
	} {
		c.p.Column = Everyone(0, c.p.Size)
		require.Equal(t, c.want, c.p.SendersAtOnce(c.window), "%d ranks, window of %d", c.p.Size, c.window)
	}
}

// TestUsersOfAHost: what ranks of one host with several users do, and say.
func TestUsersOfAHost(t *testing.T) {
	const apart = "ranks 0 and 2 of one host run as users 0 and 1000, and so share no memory"
	for _, c := range []struct {
		name   string
		hosts  string // of each rank
		users  []int
		change func(*config.Settings)
		fabric string
		nodes  [][]int
		apart  string
		wrong  string
	}{
		{"one user", "aaaa", []int{7, 7, 7, 7}, nil, "shm", nil, "", ""},
		{"two users", "aaaa", []int{0, 0, 1000, 1000}, nil, "udp", [][]int{{0, 1}, {2, 3}}, apart, ""},
		{"a user each", "aaa", []int{0, 1, 2}, nil, "udp", nil, "ranks 0 and 1 of one host run as users 0 and 1", ""},
		{"one on another host", "aaab", []int{0, 0, 1000, 0}, nil, "udp", [][]int{{0, 1}, {2}, {3}}, apart, ""},
		{"of several hosts one user each", "aabb", []int{0, 0, 1000, 1000}, nil, "udp", [][]int{{0, 1}, {2, 3}}, "", ""},
		{"udp was asked for", "aaaa", []int{0, 0, 1000, 1000}, func(s *config.Settings) { s.Fabric = "udp" }, "udp", nil, "",
			""},
		{"shm was asked for", "aaaa", []int{0, 0, 1000, 1000}, func(s *config.Settings) { s.Fabric = "shm" }, "", nil, "",
			"MCAST_FABRIC=shm, but " + apart + "; use auto or udp"},
		{"flat on several hosts", "aaab", []int{0, 0, 1000, 0}, func(s *config.Settings) { s.Nodes = "off" }, "udp", nil, "",
			""},
		{"flat on one", "aaaa", []int{0, 0, 1000, 1000}, func(s *config.Settings) { s.Nodes = "off" }, "udp", nil, apart, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings := config.Default()
			if c.change != nil {
				c.change(&settings)
			}
			var blobs [][]byte
			for r, user := range c.users {
				text, err := json.Marshal(Blob{
					Version: spokenVersion, Rank: r, Size: len(c.users), Host: c.hosts[r:r+1] + "/1/", User: fmt.Sprintf("%d/1", user),
					Address: fmt.Sprintf("10.0.0.%d", c.hosts[r]-'a'+1), Port: 7000, Key: "1", Job: "1", Settings: settings.Agreed(),
				})
				require.NoError(t, err)
				blobs = append(blobs, text)
			}
			for r := range blobs {
				a, err := New(Self{Rank: r, Size: len(blobs), Settings: settings, Version: spokenVersion}, blobs)
				if c.wrong != "" {
					require.ErrorContains(t, err, c.wrong)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, c.fabric, a.Fabric)
				require.Equal(t, c.nodes, a.Nodes)
				require.Contains(t, a.Apart, c.apart)
				require.Equal(t, c.apart == "", a.Apart == "")
			}
		})
	}
}

// TestDevicesOfAll: auto looks for RDMA devices on all hosts or on none, and says why not.
func TestDevicesOfAll(t *testing.T) {
	for name, c := range map[string]struct {
		hosts   string // of each rank; in capitals with an RDMA device
		change  func(*config.Settings)
		fabric  string // before devices were tried
		devices bool
		reason  string
	}{
		"none":            {"ab", nil, "udp", false, "ranks are on several hosts"},
		"all":             {"AB", nil, "udp", true, "ranks are on several hosts"},
		"mixed":           {"ABc", nil, "udp", false, "ranks are on several hosts; rank 1 has an RDMA device, rank 2 none"},
		"one host":        {"AA", nil, "shm", false, "all ranks share one host"},
		"udp is named":    {"AB", func(s *config.Settings) { s.Fabric = "udp" }, "udp", false, "MCAST_FABRIC=udp"},
		"verbs are named": {"Ab", func(s *config.Settings) { s.Fabric = "verbs" }, "verbs", false, "MCAST_FABRIC=verbs"},
		"a secret":        {"AB", func(s *config.Settings) { s.Secret = "x" }, "udp", true, "ranks are on several hosts"},
		"no multicast": {"AB", func(s *config.Settings) { s.Multicast = "off" }, "udp", false,
			"ranks are on several hosts; RDMA devices multicast, and MCAST_MULTICAST=off"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := config.Default()
			if c.change != nil {
				c.change(&settings)
			}
			var blobs [][]byte
			for r, h := range c.hosts {
				at := unicode.ToLower(h)
				text, err := json.Marshal(Blob{
					Version: spokenVersion, Rank: r, Size: len(c.hosts), Host: string(at) + "/1/", User: "0/1", Devices: at != h,
					Address: fmt.Sprintf("10.0.0.%d", at-'a'+1), Port: 7000, Key: "1", Job: "1", Settings: settings.Agreed(),
				})
				require.NoError(t, err)
				blobs = append(blobs, text)
			}
			for r := range blobs {
				a, err := New(Self{Rank: r, Size: len(blobs), Settings: settings, Version: spokenVersion}, blobs)
				require.NoError(t, err)
				require.Equal(t, []any{c.fabric, c.devices, c.reason}, []any{a.Fabric, a.Devices, a.Reason})
			}
		})
	}
}

// TestOtherVersion: ranks of two versions of the protocol are told from which commits they are.
func TestOtherVersion(t *testing.T) {
	o := Self{Rank: 0, Size: 2, Settings: config.Default(), Version: spokenVersion}
	blobs := [][]byte{
		fmt.Appendf(nil, `{"v":%d,"r":0,"n":2}`, wire.Version),
		fmt.Appendf(nil, `{"v":%d,"c":"0123456789ab-dirty","r":1,"n":2}`, wire.Version),
	}
	_, err := New(o, blobs)
	require.ErrorContains(t, err,
		fmt.Sprintf("rank 0 speaks version %d of the protocol (an unknown commit), rank 0 version %d.%d", wire.Version,
			wire.Version, spokenVersion%100))
	o.Rank, blobs[0] = 1, fmt.Appendf(nil, `{"v":%d,"c":"0123456789ab-dirty","r":0,"n":2}`, wire.Version)
	var mismatch *MismatchError
	_, err = New(o, blobs)
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, [2]int{0, 1}, mismatch.Between.Ranks)
	require.Contains(t, mismatch.Text, "(0123456789ab-dirty), rank 1 version")
	require.Contains(t, mismatch.Text, "install the same for all ranks")
}

// spokenVersion is one of wire.Version and of frames.
const spokenVersion = 100*wire.Version + 7

// TestDifference: settings are compared by name, and one that a rank does not spell has its default.
func TestDifference(t *testing.T) {
	of := func(change func(*config.Settings)) string {
		s := config.Default()
		change(&s)
		return s.Agreed()
	}
	chains := of(func(s *config.Settings) { s.Chains, s.Timeout = 4, time.Minute })
	group := of(func(s *config.Settings) { s.Timeout, s.Group = time.Minute, netip.MustParseAddr("255.255.255.254") })
	for _, c := range []struct{ first, other, zero, theirs, text string }{
		{chains, "", "MCAST_TIMEOUT=1m0s MCAST_CHAINS=4", "MCAST_TIMEOUT=30s MCAST_CHAINS=0",
			"rank 0 has MCAST_TIMEOUT=1m0s, rank 3 MCAST_TIMEOUT=30s; rank 0 has MCAST_CHAINS=4, rank 3 MCAST_CHAINS=0"},
		{chains, group, "MCAST_GROUP= MCAST_CHAINS=4", "MCAST_GROUP=255.255.255.254 MCAST_CHAINS=0",
			"rank 0 has MCAST_GROUP=, rank 3 MCAST_GROUP=255.255.255.254; rank 0 has MCAST_CHAINS=4, rank 3 MCAST_CHAINS=0"},
		{"MCAST_NEW=1", "", "MCAST_NEW=1", "", `rank 0 has "MCAST_NEW=1", rank 3 ""`},
	} {
		err := DifferentSettings(c.first, c.other, 3)
		require.Equal(t, [2]int{0, 3}, err.Between.Ranks)
		require.Equal(t, [2]string{c.zero, c.theirs}, err.Between.What)
		require.Equal(t, "ranks have different settings: "+c.text, err.Text)
	}
}

// TestDrawnPorts: where a port is taken, no column has one that was tried before.
func TestDrawnPorts(t *testing.T) {
	const columns = 1024
	drawn := map[uint16]bool{}
	for redrawn := range MostRedrawn + 1 {
		a := Plan{Job: 19999 << 32, Redrawn: redrawn, Addrs: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1")}}
		_, port := a.MulticastGroup()
		for column := range uint16(columns) {
			at := firstPort + (port-firstPort+column)%ports
			require.GreaterOrEqual(t, at, uint16(firstPort))
			require.Less(t, at, uint16(firstPort+ports))
			drawn[at] = true
		}
	}
	require.Len(t, drawn, columns*(MostRedrawn+1), "a column has no port that was tried before")
}
