package world

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

const (
	memoryRate  = 8e9 // bytes a second that a rank copies
	memoryDelay = 500 * time.Nanosecond
	letters     = 64       // messages that a mailbox holds
	streamRoom  = 32 << 10 // bytes at most that a stream of a region holds: little, so that it fills
)

// region is memory that ranks of a host share, as internal/transport/shm has it: rings of chunks,
// mailboxes and streams, each with one writer. They stay as they are where a process ends. Bytes
// are seen once they have been copied. world.mu guards everything.
type region struct {
	host     *Host // the process that serves it
	job, key uint64
	lay      shm.Layout
	address  string
	over     bool        // nobody is served any more
	shares   []share     // by member
	left     int         // members that do not have it yet
	rings    []slots     // by writer
	boxes    [][]box     // by writer and reader
	pipes    [2][][]pipe // of reductions and of messages, by writer and reader
	output   []byte
}

// share is what one rank has of a region.
type share struct {
	*region
	rank    *Host // the rank that has this share; nil: none has yet
	member  int
	gather  *memoryGather
	streams [2]*memoryStreams // of reductions and of messages
}

var _ hostnet.Region = (*share)(nil)

// copier is a rank that writes to memory, one thing after another.
type copier struct{ busy time.Time }

// copied returns when so many bytes are there.
func (c *copier) copied(bytes int) time.Time {
	if now := time.Now(); c.busy.Before(now) {
		c.busy = now
	}
	c.busy = c.busy.Add(time.Duration(float64(bytes) / memoryRate * float64(time.Second)))
	return c.busy.Add(memoryDelay)
}

// ServeRegion implements hostnet.Network.
func (h *Host) ServeRegion(ctx context.Context, job, key uint64, lay shm.Layout) (hostnet.RegionServer, error) {
	if err := lay.Check(); err != nil {
		return nil, err
	}
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is(Descriptors, h) || h.gone {
		return nil, fmt.Errorf("shm: memfd_create: %w", syscall.EMFILE)
	}
	r := &region{
		host: h, job: job, key: key, lay: lay, address: fmt.Sprintf("@region-%d", h.free()), left: lay.Size,
		output: make([]byte, lay.Output),
	}
	r.shares, r.rings = make([]share, lay.Size), make([]slots, lay.Size)
	r.boxes = make([][]box, lay.Size)
	for set := range r.pipes {
		r.pipes[set] = make([][]pipe, lay.Size)
	}
	for i := range lay.Size {
		r.rings[i].tails = make([]int, lay.Size)
		r.boxes[i] = make([]box, lay.Size)
		for set := range r.pipes {
			r.pipes[set][i] = make([]pipe, lay.Size)
		}
	}
	h.regions[r.address] = r
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.stop()
	})
	return r, nil
}

// stop serves nobody any more. Ranks that have the region keep it.
func (r *region) stop() {
	r.over = true
	delete(r.host.regions, r.address)
}

// Address implements hostnet.RegionServer.
func (r *region) Address() string { return r.address }

// regionClient has asked for a share of a region.
type regionClient struct {
	host     *Host
	region   *region
	job, key uint64
	member   int
	size     int
	welcome  bool // the server has said so
}

// DialRegion implements hostnet.Network.
func (h *Host) DialRegion(
	_ context.Context, address string, job, key uint64, rank, size int,
) (hostnet.RegionClient, error) {
	w := h.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is(Descriptors, h) || h.gone {
		return nil, failing("socket", syscall.EMFILE)
	}
	r := h.regions[address]
	if r == nil || r.host.gone {
		return nil, fabric.Unavailable("shm: no region is served at %s", address)
	}
	if netdev.DifferentUsers(r.host.User(), h.User()) {
		return nil, fmt.Errorf("shm: the peer runs as user %s, this rank as %s", r.host.User(), h.User())
	}
	return &regionClient{host: h, region: r, job: job, key: key, member: rank, size: size}, nil
}

var errRefused = errors.New("shm: refused by the region's server")

// Attach implements hostnet.RegionClient. A server that is stopped answers later.
func (c *regionClient) Attach(ctx context.Context) (hostnet.Region, error) {
	w, r := c.host.world, c.region
	w.mu.Lock()
	defer w.mu.Unlock()
	for r.host.stopped != nil && !c.welcome {
		stopped := r.host.stopped
		w.mu.Unlock()
		select {
		case <-stopped:
		case <-ctx.Done():
		}
		w.mu.Lock()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("shm: no answer from the region's server: %w", context.Cause(ctx))
		}
	}
	if !c.welcome {
		if r.over || r.host.gone || c.job != r.job || c.key != r.key || c.size != r.lay.Size ||
			r.shares[c.member].rank != nil {
			return nil, errRefused
		}
		c.welcome = true
		r.shares[c.member] = share{region: r, rank: c.host, member: c.member}
		if r.left--; r.left == 0 {
			r.stop()
		}
	}
	if w.is(Descriptors, c.host) {
		return nil, fmt.Errorf("shm: no descriptor is left for the region: %w", syscall.EMFILE)
	}
	s := &r.shares[c.member]
	s.gather, s.streams = newMemoryGather(s), [2]*memoryStreams{newMemoryStreams(s, 0), newMemoryStreams(s, 1)}
	return s, nil
}

// Close implements hostnet.RegionClient.
func (c *regionClient) Close() {}

// Gather implements hostnet.Region.
func (s *share) Gather() fabric.Gather { return s.gather }

// Streams implements hostnet.Region.
func (s *share) Streams() fabric.Streams { return s.streams[0] }

// Messages implements hostnet.Region.
func (s *share) Messages() fabric.Streams { return s.streams[1] }

// Output implements hostnet.Region.
func (s *share) Output() ([]byte, func() error) {
	if len(s.output) == 0 {
		return nil, nil
	}
	return s.output, func() error { return nil }
}

// Close implements hostnet.Region.
func (s *share) Close() error { return nil }

// still reports whether the rank neither reads nor writes now. world.mu is held.
func (s *share) still() bool { return s.rank.stopped != nil || s.rank.gone }
