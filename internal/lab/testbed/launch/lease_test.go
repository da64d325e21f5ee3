package launch

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

func TestFreeGroup(t *testing.T) {
	all := []netip.Addr{netip.MustParseAddr("239.192.77.0")}
	for len(all) < testbed.Groups {
		all = append(all, all[len(all)-1].Next())
	}
	taken := map[netip.Addr]bool{all[0]: true, all[3]: true, netip.MustParseAddr("239.1.1.1"): true}
	for groups, want := range map[int]int{1: 1, 2: 1, 3: 4, 60: 4} {
		g, err := freeGroup(all, taken, groups)
		require.NoError(t, err)
		require.Equal(t, all[want], g, "%d groups", groups)
	}
	_, err := freeGroup(all, taken, 61)
	require.ErrorContains(t, err, "no 61 of the testbed's 64 groups in a row are free")
}
