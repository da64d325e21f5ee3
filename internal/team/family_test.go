package team

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// TestRanksAgreeOnAFamily has ranks on hosts of their own that offer what each word says.
func TestRanksAgreeOnAFamily(t *testing.T) {
	for offered, want := range map[string]string{
		"4 4 4":    "10.0.0.1 10.0.0.2 10.0.0.3",
		"46 46 46": "10.0.0.1 10.0.0.2 10.0.0.3",
		"46 4 46":  "10.0.0.1 10.0.0.2 10.0.0.3",
		"46 6 46":  "fd00::1 fd00::2 fd00::3",
		"6 6 6":    "fd00::1 fd00::2 fd00::3",
		"L L L":    "fe80::1%eth1 fe80::2%eth1 fe80::3%eth1", // rank 1's interface
		"46 4 6": "rank 1, host host1 (10.0.0.2), can be reached over IPv4 alone, and rank 2, host host2 (fd00::3), can " +
			"be reached over IPv6 alone",
		"4 46 6":   "rank 0, host host0 (10.0.0.1), can be reached over IPv4 alone, and rank 2, host host2 (fd00::3)",
		"6 L 6":    "rank 1, host host1 (fe80::2%eth1), can be reached over IPv6 within its link alone",
		"4 - 4":    "blob of rank 1 has no address",
		"46 46 44": `blob of rank 2 has the addresses "10.0.0.3" and "10.0.0.3"`,
	} {
		var blobs [][]byte
		for r, kinds := range strings.Fields(offered) {
			b, n := Blob{}, byte(r+1)
			addresses := map[rune]netip.Addr{
				'4': netip.AddrFrom4([4]byte{10, 0, 0, n}), '6': netip.AddrFrom16([16]byte{0xfd, 15: n}),
				'L': netip.AddrFrom16([16]byte{0xfe, 0x80, 15: n}).WithZone(fmt.Sprintf("eth%d", r)),
			}
			for _, kind := range kinds {
				if a := addresses[kind]; a.IsValid() {
					b.Offer([]netip.Addr{a})
				}
			}
			if kinds == "44" {
				b.Address6 = b.Address
			}
			blobs = append(blobs, fmt.Appendf(nil,
				`{"v":%d,"r":%d,"n":3,"h":"boot%d/1","hn":"host%d","a":"%s","6":"%s","p":7000,"k":"1","j":"1","m":1500}`,
				spokenVersion, r, r, r, b.Address, b.Address6))
		}
		a, err := New(Self{Rank: 1, Size: 3, Settings: config.Default(), Version: spokenVersion}, blobs)
		if err != nil {
			require.ErrorContains(t, err, want, offered)
			continue
		}
		var got []string
		for _, at := range a.Addrs {
			got = append(got, at.Addr().String())
		}
		require.Equal(t, want, strings.Join(got, " "), offered)
		group, _ := a.MulticastGroup()
		require.Equal(t, a.Addrs[0].Addr().Is4(), group.Is4(), offered)
	}
}

// TestDrawnGroups: the groups of two jobs differ, on Ethernet too, and leave room for subgroups.
func TestDrawnGroups(t *testing.T) {
	block := map[bool]string{true: "239.192.0.0/14", false: "ff15::/16"}
	for _, is4 := range []bool{true, false} {
		one, other := drawnGroup(is4, 0x0123456789abcdef), drawnGroup(is4, 0x0123456789abceef)
		for _, g := range []netip.Addr{one, other} {
			require.True(t, netip.MustParsePrefix(block[is4]).Contains(g), g)
			require.Zero(t, g.AsSlice()[g.BitLen()/8-1]&15, g)
		}
		last := func(g netip.Addr) []byte { return g.AsSlice()[g.BitLen()/8-3:] }
		require.False(t, bytes.Equal(last(one), last(other)), "%v %v", one, other)
	}
}
