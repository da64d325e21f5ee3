package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// TestRanksKnowTheirBuild: a rank of another release is told the version and the commit of this one.
func TestRanksKnowTheirBuild(t *testing.T) {
	o := Options{Rank: 1, Size: 2, Settings: config.Default()}
	_, err := team.New(o.self(), [][]byte{[]byte(`{"v":1,"r":0,"n":2}`), []byte(`{"v":1,"r":1,"n":2}`)})
	require.ErrorContains(t, err, fmt.Sprintf("rank 1 version %d.%d of the protocol", wire.Version, mesh.Version))
	require.Equal(t, version.Commit(), o.self().Commit)
}

// TestObserver: pages and traces are of groups over the kernel's network.
func TestObserver(t *testing.T) {
	e, err := Open(Options{Size: 1, Settings: config.Default()})
	require.NoError(t, err)
	defer e.Close()
	require.Same(t, monitor.ThisProcess, e.observer)
	e, err = Open(Options{Size: 1, Settings: config.Default(), Network: e.opts.Network})
	require.NoError(t, err)
	e.Close()
	require.Equal(t, monitor.Unobserved{}, e.observer)
}
