package world

import (
	"context"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// ServeRegion implements group.Network.
func (h *Host) ServeRegion(context.Context, uint64, uint64, shm.Layout) (group.RegionServer, error) {
	return nil, fmt.Errorf("%w: hosts have one rank each", fabric.ErrUnavailable)
}

// DialRegion implements group.Network.
func (h *Host) DialRegion(context.Context, string, uint64, uint64, int, int) (group.RegionClient, error) {
	return nil, fmt.Errorf("%w: hosts have one rank each", fabric.ErrUnavailable)
}
