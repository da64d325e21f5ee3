package batch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOffloadNames(t *testing.T) {
	for _, o := range []Offload{OffloadAuto, OffloadGSO, OffloadBatch, OffloadSingle} {
		parsed, err := ParseOffload(o.String())
		require.NoError(t, err)
		require.Equal(t, o, parsed)
	}
	_, err := ParseOffload("rdma")
	require.EqualError(t, err, `offload "rdma" is unknown: want auto, gso, batch or single`)
}
