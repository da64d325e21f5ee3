package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// openShm attaches to the region of all ranks.
func openShm(ctx context.Context, m *mesh.Mesh, l *lobby, a *agreement) (*transports, error) {
	everybody := make([]int, a.size)
	for r := range everybody {
		everybody[r] = r
	}
	w, err := openRegion(ctx, m, l, a, everybody)
	if err != nil {
		return nil, err
	}
	return &transports{
		gather:  w.Gather(),
		by:      gathering{byMemory, "all ranks are on one host"},
		peers:   a.peers(nil, nil, nil),
		streams: func(context.Context) (fabric.Streams, error) { return w.Streams(), nil },
		shared:  w,
		free:    w.Close,
	}, nil
}
