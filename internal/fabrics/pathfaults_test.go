package fabrics

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// TestPathFaults: faults of a path name its two ranks.
func TestPathFaults(t *testing.T) {
	a := &team.Plan{Rank: 3, Addrs: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1")}}
	late := fmt.Errorf("cannot be reached at 10.0.0.1:1: %w",
		&owntime.TimeoutError{Setting: "MCAST_TIMEOUT", After: time.Second})
	for _, f := range []*mesh.Fault{
		CannotConnect(a, &bootstrap.AbsentError{Rank: 12, Err: late}),
		Stalled(a, "eth0", 12, &sys.StallError{For: time.Second}),
		(&probed{from: 3, to: 12}).fault("too narrow"),
	} {
		require.Equal(t, mesh.Path, f.Kind)
		require.Equal(t, [2]int{3, 12}, [2]int{f.From, f.Rank}, f)
	}
}
