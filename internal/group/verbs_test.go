package group

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// TestVerbsNowhere: a rank without a device, or a library, is named together with the missing piece.
func TestVerbsNowhere(t *testing.T) {
	s := config.Default()
	s.Fabric, s.Interface = "verbs", "lo"
	endpoints, blobs := make([]*Endpoint, 2), make([][]byte, 2)
	for r := range endpoints {
		var err error
		endpoints[r], err = Open(Options{Rank: r, Size: 2, Settings: s})
		require.NoError(t, err)
		blobs[r] = endpoints[r].Blob()
	}
	each(t, 2, func(r int) error {
		g, err := endpoints[r].Join(context.Background(), blobs)
		if err == nil {
			return fmt.Errorf("it joined over %s: %w", g.Info().Fabric, g.Close())
		}
		require.ErrorContains(t, err, "verbs: ")
		require.Regexp(t, "libibverbs.so.1 cannot be loaded|no RDMA device", err.Error())
		return nil
	})
}
