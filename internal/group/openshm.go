package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// openShm attaches to the region that rank 0 serves.
func openShm(ctx context.Context, m *mesh.Mesh, l *lobby, a *agreement) (*transports, error) {
	var server *shm.Server
	var mine joinResult
	var err error
	if a.rank == 0 {
		lay := shm.DefaultLayout(a.size)
		lay.Slots = a.settings.ShmSlots
		if a.settings.ShmChunk != config.Default().ShmChunk {
			lay.Chunk = a.settings.ShmChunk // asked for, so not scaled to the number of ranks
		}
		server, err = whenThere(ctx, l, "a region", func() (*shm.Server, error) { return shm.Serve(ctx, a.job, a.keys[0], lay) })
		if err == nil {
			mine.Shm = server.Address()
		}
	}
	all, err := agree(ctx, m, mine, err)
	if err != nil {
		return nil, err
	}
	c, err := whenThere(ctx, l, "the region's server", func() (*shm.Client, error) {
		return shm.Dial(ctx, all[0].Shm, a.job, a.keys[0], a.rank, a.size)
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	w, err := whenThere(ctx, l, "the region", func() (*shm.Region, error) { return c.Attach(ctx) })
	if err != nil {
		return nil, err
	}
	return &transports{
		gather:  w.Gather(),
		by:      gathering{byMemory, "all ranks are on one host"},
		peers:   a.peers(nil, nil, nil),
		streams: func(context.Context) (fabric.Streams, error) { return w.Streams(), nil },
		free:    w.Close,
	}, nil
}
