package monitor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// TestMisplacedIsCounted: what a fabric has moved is a counter of the group.
func TestMisplacedIsCounted(t *testing.T) {
	s := sources{fabric: fabric.Stats{Misplaced: 7}}
	require.EqualValues(t, 7, s.stats().ChunksMisplaced)
}
