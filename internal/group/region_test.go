package group

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// noMemory is a network that refuses shared memory to one rank: to make it, or to attach it.
type noMemory struct {
	hostnet.Kernel
	serve, attach bool
}

func (n noMemory) ServeRegion(ctx context.Context, job, key uint64, lay shm.Layout) (hostnet.RegionServer, error) {
	if n.serve {
		return nil, os.NewSyscallError("memfd_create", unix.EPERM)
	}
	return n.Kernel.ServeRegion(ctx, job, key, lay)
}

func (n noMemory) DialRegion(
	ctx context.Context, address string, job, key uint64, rank, size int,
) (hostnet.RegionClient, error) {
	if n.attach {
		return nil, os.NewSyscallError("connect", unix.EPERM)
	}
	return n.Kernel.DialRegion(ctx, address, job, key, rank, size)
}

// TestNoSharedMemory: what auto has chosen is given up where one rank cannot have it.
func TestNoSharedMemory(t *testing.T) {
	waits(t)
	for _, c := range []struct {
		name   string
		fabric string
		odd    noMemory // rank 1
		first  noMemory // rank 0
		want   string
	}{
		{"serve", "auto", noMemory{}, noMemory{serve: true}, "rank 0: memfd_create: operation not permitted"},
		{"attach", "auto", noMemory{attach: true}, noMemory{}, "rank 1: connect: operation not permitted"},
		{"asked for", "shm", noMemory{attach: true}, noMemory{},
			"rank 1 aborted: it cannot join: MCAST_FABRIC=shm, and it has no shared memory (auto and udp do without): " +
				"connect: operation not permitted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			const size = 2
			groups, blobs := make([]*Endpoint, size), make([][]byte, size)
			for r := range size {
				n := []noMemory{c.first, c.odd}[r]
				s := config.Default()
				s.Fabric = c.fabric
				var err error
				groups[r], err = Open(Options{Rank: r, Size: size, Settings: s, Network: n})
				require.NoError(t, err)
				blobs[r] = groups[r].Blob()
			}
			each(t, size, func(r int) error {
				g, err := groups[r].Join(t.Context(), blobs)
				if c.fabric == "shm" {
					assert.ErrorContains(t, err, c.want)
					return nil
				}
				if err != nil {
					return err
				}
				i := g.Info()
				assert.Equal(t, "udp", i.Fabric)
				assert.Contains(t, i.Reason+i.NodesReason, "share no memory: "+c.want)
				assert.Contains(t, strings.Join(i.Notes, "\n"), "shared memory cannot be had at "+c.want)
				if err := bothKinds(g, r); err != nil {
					return err
				}
				return g.Close()
			})
		})
	}
}
