package hostnet

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// Region is memory that ranks of a host share, as one of them sees it.
type Region interface {
	// Gather, Streams and Messages return the fabrics that the region is, always the same ones.
	Gather() fabric.Gather
	Streams() fabric.Streams  // of reductions
	Messages() fabric.Streams // of messages from rank to rank
	// Output hands over the memory for results, nil if there is none, and what gives it back, which may
	// be called after Close.
	Output() (mem []byte, free func() error)
	// Close closes all fabrics.
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
func (Kernel) ServeRegion(ctx context.Context, job, key uint64, lay shm.Layout) (RegionServer, error) {
	return shm.Serve(ctx, job, key, lay)
}

// DialRegion implements Network.
func (Kernel) DialRegion(ctx context.Context, address string, job, key uint64, rank, size int) (RegionClient, error) {
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

// Messages implements Region.
func (r kernelRegion) Messages() fabric.Streams { return r.Region.Messages() }
