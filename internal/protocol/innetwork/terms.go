// Package innetwork is in-network Reduce-Scatter as pure state machines (Khalilov et al. (SC24), Insight 2 and appendix
// B; the roles are SHARP's, the slots SwitchML's). Every rank streams its contributions once to the switch, which
// reduces them and sends each shard's result to its owner only. The code calls the switch a node. Member is a rank's
// side, Stage a node's. Neither has a clock, socket, goroutine, lock or random source: their drivers say what happened
// and ask what to do. Only members have timers: a Stage just answers, so that the same protocol fits a hardware switch.
//
// A job is one communicator's Reduce-Scatter at a node. It is cut into stripes that share nothing, one for each worker
// of the node and each track. A stripe is a sequence of slots, numbered on and on over all operations; the node holds a
// window of them. To each slot every member contributes once, and one rank owns its result.
//
//   - A member may send slots below a limit that the node grants; the node
//     notes each contribution by a bit for its member and slot, so a
//     duplicate changes nothing.
//   - An owner acknowledges results. When the results of all slots below some number are
//     acknowledged, these slots are free for good: that number is the base. An
//     operation is done at a rank when the base has passed its last slot, for
//     then every owner holds its result and nobody needs anybody's input.
//   - A member that hears nothing new polls; the answer names the missing slots.
//     A node that sees a gap says so at once.
//
// The words are in docs/reference/glossary.md.
package innetwork

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Time is a moment.
type Time = collective.Time

// Limits of a job.
const (
	// MaxSlots bounds the window of a stripe: the missing ones of a whole window fit one message.
	MaxSlots = 8 * wire.MaxSlotSet
	// BlockBytes is about how much of one shard follows in one go, before the next owner's turn: what one call to the
	// kernel takes.
	BlockBytes = 64 << 10
)

// Terms are what a node and the members of a job agree on when it is admitted.
type Terms struct {
	Job     uint64 // in every datagram; drawn by the node for each admission
	Ranks   int    // P, of the whole job
	Stripes int    // S
	// Tracks says which stripes a Reduce takes, so that Reduces to different ranks go on side by side: a Reduce to rank r
	// takes the stripes of track r mod Tracks. All tracks have the same number of consecutive stripes. A Reduce-Scatter
	// takes the stripes of track 0: results of more stripes are more flows, and a network may give each flow a share of a
	// link that an Allgather needs. 0: one.
	Tracks int
	Chunk  int    // most payload bytes of a datagram, a multiple of 8
	Slots  int    // W, the window of each stripe, a power of two
	First  uint32 // number of the first slot of every stripe; any
	// Queue is how many slots a member may have on their way that the node has
	// not read: what the node's receive queue for it holds. 0: no limit.
	Queue int
	// Wide says that nodes form a tree: slots have room for partial results in the accumulator type of any element type.
	Wide bool
	// Cutoff is how long a member waits for news before it polls, at first;
	// Reorder how long a gap in its results may be one overtaken by another.
	// Each member has its own.
	Cutoff, Reorder Time
}

// Check returns an error if the terms are wrong.
func (t *Terms) Check() error {
	switch {
	case t.Ranks < 1 || t.Ranks > collective.MaxRanks:
		return fmt.Errorf("innetwork: %d ranks: want 1 to %d", t.Ranks, collective.MaxRanks)
	case t.Stripes < 1 || t.Stripes > 256:
		return fmt.Errorf("innetwork: %d stripes: want 1 to 256", t.Stripes)
	case t.Tracks < 0 || t.Stripes%t.tracks() != 0:
		return fmt.Errorf("innetwork: %d tracks for %d stripes: want 1, or a divisor", t.Tracks, t.Stripes)
	case t.Chunk < 8 || t.Chunk%8 != 0 || t.Chunk > 1<<16:
		return fmt.Errorf("innetwork: chunk of %d bytes: want a multiple of 8 up to %d", t.Chunk, 1<<16)
	case t.Slots < 1 || t.Slots > MaxSlots || t.Slots&(t.Slots-1) != 0:
		return fmt.Errorf("innetwork: %d slots: want a power of two up to %d", t.Slots, MaxSlots)
	case t.Queue < 0:
		return fmt.Errorf("innetwork: queue of %d slots: want 0 or more", t.Queue)
	}
	return nil
}

// MostTracks bounds the ranks of a job that has a track for each, see TracksFor.
const MostTracks = 8

// TracksFor returns how many tracks a job has. A rank with a result under way has one contribution less to send than
// the others, so there is something to gain only if results of all ranks are under way, each in a track of its own. The
// gain is one part in as many as there are ranks, so it shrinks with their number.
func TracksFor(ranks int) int {
	if ranks > MostTracks {
		return 1
	}
	return ranks
}

func (t *Terms) tracks() int { return max(1, t.Tracks) }

// allowance is how many slots a member may have under way at most.
func (t *Terms) allowance() uint32 {
	if t.Queue > 0 {
		return uint32(min(t.Slots, t.Queue))
	}
	return uint32(t.Slots)
}

var errNoMemory = errors.New("innetwork: not enough slot memory; see MemoryFor")

// slotBits is room for the bits of a wire.SlotSet.
type slotBits [wire.MaxSlotSet]byte

// pack returns the bits from 0 up to n for which has is true, as a wire.SlotSet has them.
func (b *slotBits) pack(n int, has func(i int) bool) []byte {
	clear(b[:])
	last := -1
	for i := range min(n, 8*len(b)) {
		if has(i) {
			b[i>>3] |= 1 << (i & 7)
			last = i
		}
	}
	return b[:(last+8)>>3]
}
