package group

import (
	"context"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// Region is memory that ranks of a host share, as one of them sees it.
type Region interface {
	// Gather and Streams return the fabrics that the region is, always the same ones.
	Gather() fabric.Gather
	Streams() fabric.Streams
	// Output hands over the memory for results, nil if there is none, and what gives it back, which may
	// be called after Close.
	Output() (mem []byte, free func() error)
	// Close closes both fabrics.
	Close() error
}

// RegionServer gives a region to each of its ranks.
type RegionServer interface {
	// Address is what DialRegion needs on this host.
	Address() string
}

// RegionClient waits for a rank's region, for which it has asked.
type RegionClient interface {
	// Attach may be called again where it fails for want of a descriptor.
	Attach(ctx context.Context) (Region, error)
	// Close hangs up. The region stays.
	Close()
}

// ServeRegion implements Network.
func (kernel) ServeRegion(ctx context.Context, job, key uint64, lay shm.Layout) (RegionServer, error) {
	return shm.Serve(ctx, job, key, lay)
}

// DialRegion implements Network.
func (kernel) DialRegion(ctx context.Context, address string, job, key uint64, rank, size int) (RegionClient, error) {
	c, err := shm.Dial(ctx, address, job, key, rank, size)
	return kernelClient{c}, err
}

type kernelClient struct{ *shm.Client }

// Attach implements RegionClient.
func (c kernelClient) Attach(ctx context.Context) (Region, error) {
	r, err := c.Client.Attach(ctx)
	if err != nil {
		return nil, err
	}
	return kernelRegion{r}, nil
}

type kernelRegion struct{ *shm.Region }

// Gather implements Region.
func (r kernelRegion) Gather() fabric.Gather { return r.Region.Gather() }

// Streams implements Region.
func (r kernelRegion) Streams() fabric.Streams { return r.Region.Streams() }

// openRegion attaches this rank to the region that the first of its members serves. Members are the
// ranks that share it, this one among them: a rank's number in the region is its place there. All
// ranks of the group call it, each with the members of its own region.
func openRegion(ctx context.Context, m *mesh.Mesh, l *lobby, a *agreement, members []int) (Region, error) {
	first, own := members[0], slices.Index(members, a.rank)
	var mine joinResult
	var err error
	if own == 0 {
		var server RegionServer
		server, err = whenThere(ctx, l, "a region", func() (RegionServer, error) {
			return l.network.ServeRegion(ctx, a.job, a.keys[first], a.layout(len(members)))
		})
		if err == nil {
			mine.Shm = server.Address()
		}
	}
	all, err := agree(ctx, m, mine, err)
	if err != nil {
		return nil, err
	}
	c, err := whenThere(ctx, l, "the region's server", func() (RegionClient, error) {
		return l.network.DialRegion(ctx, all[first].Shm, a.job, a.keys[first], own, len(members))
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return whenThere(ctx, l, "the region", func() (Region, error) { return c.Attach(ctx) })
}

// layout is that of a region for so many ranks.
func (a *agreement) layout(members int) shm.Layout {
	lay := shm.DefaultLayout(members)
	lay.Slots = a.settings.ShmSlots
	if a.settings.ShmChunk != config.Default().ShmChunk {
		lay.Chunk = a.settings.ShmChunk // asked for, so not scaled to the number of ranks
	}
	lay.Output = outputBytes(members, a.settings.Outputs)
	return lay
}
