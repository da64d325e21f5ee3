package multicast

import (
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

const (
	// MaxSubgroups is how many subgroups the headers have room for.
	MaxSubgroups = 1 << 8

	// mostShares bounds the roots that send at a time. NCCL has no more windows in flight, and so no more
	// roots.
	mostShares = 8
	// maxKnown is how many operations a rank can know at once; a power of two.
	maxKnown = 256
	// maxChunks is how many chunks a whole buffer has at most.
	maxChunks = 1 << 31
)

// Config holds what all ranks of a communicator must agree on, and a rank's place in it.
type Config struct {
	Rank, Size int
	Chunk      int // payload bytes of a chunk
	// Lossless says that the fabric delivers every chunk once, in order, and holds those of
	// operations not posted yet. Barrier, sequencer, repair and handshake are then left out.
	Lossless  bool
	Window    int // chunks that may be under way to a receiver; 0: no limit
	Chains    int // M, roots that multicast at the same time; at least 1
	Subgroups int // G, multicast groups a root's chunks are spread over; at least 1
	Eager     int // bytes of a whole buffer (P*N) up to which an operation is eager
	Arena     int // bytes of each of the two arenas; at least Eager
	// EagerChunks is how many chunks an epoch's eager operations may have in all.
	EagerChunks int
	Cutoff      time.Duration // smallest cutoff time alpha (III-C)
	Reorder     time.Duration // how long a gap may be a chunk overtaken by another, at first
	// Deaf says that multicast does not reach all ranks at first: see reachability.
	Deaf bool `json:",omitempty"`
	// Reads is how many chunks of the left neighbour's memory are read at a time at most; 0: none, since the fabric reads
	// nothing.
	Reads int `json:",omitempty"`
	// Ring is the order of all ranks in the ring that requests, relays and barriers go along; nil: the order of their
	// numbers.
	Ring []int `json:",omitempty"`
	// First is the number of the first operation; not 0 where numbers are to come round.
	First uint32 `json:",omitempty"`
}

// Check returns an error, with the allowed values, if a configuration is wrong.
func (c *Config) Check() error {
	switch {
	case c.Size > collective.MaxRanks:
		return fmt.Errorf("multicast: %d ranks; want 1 to %d", c.Size, collective.MaxRanks)
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("multicast: rank %d of %d", c.Rank, c.Size)
	case c.Chunk < 1 || c.Chains < 1 || c.Subgroups < 1 || c.Subgroups > MaxSubgroups || c.Window < 0 || c.Reads < 0:
		return fmt.Errorf("multicast: chunk %d, chains %d, subgroups %d, window %d, reads %d; "+
			"chunk and chains must be at least 1, subgroups 1 to %d, the window and reads not negative",
			c.Chunk, c.Chains, c.Subgroups, c.Window, c.Reads, MaxSubgroups)
	case c.Ring != nil && !permutes(c.Ring, c.Size):
		return fmt.Errorf("multicast: ring %v; want each of %d ranks once", c.Ring, c.Size)
	case !c.Lossless && c.Arena < c.Eager:
		return fmt.Errorf("multicast: arena of %d bytes for eager operations of up to %d", c.Arena, c.Eager)
	}
	return nil
}

// permutes reports whether a list has each of so many ranks once.
func permutes(ring []int, size int) bool {
	sorted := slices.Sorted(slices.Values(ring))
	for place, rank := range sorted {
		if rank != place {
			return false
		}
	}
	return len(sorted) == size
}

// Share returns how much of the window a series has while all ranks send one. It is all of the window where the ranks
// never all send at the same time, since there are too many ranks or too few chunks for each.
func (c *Config) Share() int {
	if share := c.Window / c.Size; c.Size <= mostShares && share >= 4 {
		return share
	}
	return c.Window
}
