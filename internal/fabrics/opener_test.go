package fabrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestFabricsThatConnect: exactly the fabrics that are opened over a network connect.
func TestFabricsThatConnect(t *testing.T) {
	for _, name := range []string{"shm", "udp", "verbs"} {
		require.Equal(t, openers[name] != nil, (&team.Plan{Fabric: name}).Connects(), name)
	}
	require.Len(t, openers, 2)
}
