package team

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// TestWays: each rank's line has its addresses, the first of the default route, with their speeds. The last bytes of
// the addresses by each way are wanted.
func TestWays(t *testing.T) {
	for name, c := range map[string]struct {
		hosts string
		ranks []string
		want  string
	}{
		"one network": {"ab", []string{"10.0.0.1/24 0", "10.0.0.2/24 0"}, "1 2"},
		"routed":      {"ab", []string{"10.1.0.1/24 0", "10.2.0.2/24 0"}, "1 2"},
		"the same address behind a virtual machine's NAT": {
			"ab", []string{"10.0.2.15/24 0,192.168.56.11/24 0", "10.0.2.15/24 0,192.168.56.12/24 0"}, "11 12",
		},
		"bridges of containers": {
			"abc", []string{"10.1.0.1/24 0,172.17.0.1/16 0", "10.2.0.2/24 0,172.17.0.1/16 0", "10.3.0.3/24 0,172.17.0.1/16 0"},
			"1 2 3",
		},
		"another network": {"ab", []string{"10.1.0.1/24 0,10.9.0.11/24 0", "10.2.0.2/24 0,10.9.0.12/24 0"}, "1 2|11 12"},
		"a faster one": {"ab", []string{"10.1.0.1/24 1000,10.9.0.11/24 100000", "10.1.0.2/24 1000,10.9.0.12/24 25000"},
			"11 12|1 2"},
		"one that is faster on one host": {
			"ab", []string{"10.1.0.1/24 1000,10.9.0.11/24 100000", "10.1.0.2/24 1000,10.9.0.12/24 1000"}, "1 2|11 12",
		},
		"default routes are tried however many faster networks there are": {
			"ab", []string{
				"10.1.0.1/24 1000,10.2.0.11/24 9000,10.3.0.21/24 9000,10.4.0.31/24 9000,10.5.0.41/24 9000",
				"10.1.0.2/24 1000,10.2.0.12/24 9000,10.3.0.22/24 9000,10.4.0.32/24 9000,10.5.0.42/24 9000",
			}, "11 12|21 22|31 32|1 2",
		},
		"two addresses in a network": {"ab",
			[]string{"10.1.0.1/24 0,10.9.0.11/24 0,10.9.0.100/24 0", "10.2.0.2/24 0,10.9.0.12/24 0"}, "1 2|11 12"},
		"unknown speeds": {"ab", []string{"10.1.0.1/24 0,10.9.0.11/24 100000", "10.1.0.2/24 1000,10.9.0.12/24 25000"},
			"1 2|11 12"},
		"not all are in it": {
			"abc", []string{"10.1.0.1/24 0,10.9.0.11/24 0", "10.2.0.2/24 0,10.9.0.12/24 0", "10.3.0.3/24 0"}, "1 2 3",
		},
		"two ranks a host": {"aabb", []string{"10.0.0.1/24 0", "10.0.0.1/24 0", "10.0.0.2/24 0", "10.0.0.2/24 0"},
			"1 1 2 2"},
		"loopback on one":      {"ab", []string{"10.0.0.1/24 0", "127.0.0.1/8 0"}, ""},
		"loopback on one host": {"aa", []string{"127.0.0.1/8 0", "127.0.0.1/8 0"}, "1 1"},
		"nothing in common":    {"ab", []string{"10.0.2.15/24 0,10.1.0.1/24 0", "10.0.2.15/24 0,10.2.0.1/24 0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var offered []offers
			var candidates [][]netdev.Candidate
			for _, line := range c.ranks {
				var mine []netdev.Candidate
				for text := range strings.SplitSeq(line, ",") {
					var one netdev.Candidate
					require.NoError(t, one.UnmarshalText([]byte(text)))
					mine = append(mine, one)
				}
				offered = append(offered, offers{over4: mine[0].Net.Addr()})
				candidates = append(candidates, mine)
			}
			var got []string
			for _, w := range ways(lettered(c.hosts), offered, candidates) {
				var last []string
				for _, at := range w.Addrs {
					last = append(last, at.String()[strings.LastIndexByte(at.String(), '.')+1:])
				}
				got = append(got, strings.Join(last, " "))
			}
			require.Equal(t, c.want, strings.Join(got, "|"))
		})
	}
}

// TestOneRankAsksForAnInterface: all ranks of a host come to the same ways.
func TestOneRankAsksForAnInterface(t *testing.T) {
	settings := config.Default()
	var blobs [][]byte
	for r := range 2 {
		text, err := json.Marshal(Blob{
			Version: spokenVersion, Rank: r, Size: 2, Host: "a/1", Address: "10.0.0.1", Address6: "fd00::1", Port: 7000,
			Key: "1", Job: "1",
			Settings: settings.Agreed(), Asked: r == 0,
		})
		require.NoError(t, err)
		blobs = append(blobs, text)
	}
	for r, name := range []string{"eth0", ""} {
		settings.Interface = name
		a, err := New(Self{Rank: r, Size: 2, Settings: settings, Version: spokenVersion}, blobs)
		require.NoError(t, err)
		require.Len(t, a.Ways, 2)
		require.Equal(t, "10.0.0.1", a.Addrs[1].Addr().String())
	}
}

func TestNoWay(t *testing.T) {
	a := &Plan{Size: 2, Hosts: lettered("ab")}
	nat := offers{over4: netip.MustParseAddr("10.0.2.15")}
	require.ErrorContains(t, a.noWay([]offers{nat, nat}), "both have the address 10.0.2.15 on their default route, and "+
		"there is no network that all hosts are in: set MCAST_IFACE")
}
