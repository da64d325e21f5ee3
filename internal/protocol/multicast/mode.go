package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/topology"

// kind is one of the four ways that an operation may take.
type kind uint8

const (
	// reliable: the fabric loses nothing and holds what comes early, or there is nobody else.
	// Chunks are sent at once into the user's buffer, and that is all.
	reliable kind = iota
	// eager: it is small. Chunks are sent at once into the arena, which every rank holds ready; lost chunks are fetched.
	eager
	// serial: it is a Broadcast. Its root sends it as far as the slowest receiver has posted it and its credit allows,
	// together with those before and behind it and those of other roots; chunks land in the user's buffer, lost chunks are
	// fetched, and a handshake ends it.
	serial
	// large: a barrier announces it, roots take turns and are limited by credit, chunks land in the user's buffer, lost
	// chunks are fetched, and a handshake ends it.
	large
)

// inPlace reports whether chunks land in the user's buffer and lost chunks are fetched.
func (k kind) inPlace() bool { return k >= serial }

// NotEager in a Data header's Arena marks a chunk for the user's buffer.
const NotEager = ^uint32(0)

// mode is how an operation travels. It is chosen once, when the operation is posted, from what was
// posted before and the configuration, so all ranks choose alike.
type mode struct {
	kind kind
	// barrier: the operation has one, which opens an epoch. Always if it is large; if it is serial,
	// only where eager ones have been kept for long.
	barrier bool
	// handshake: it is done only when the right neighbour has it too. An eager one needs that only
	// if it is the last.
	handshake bool
	// compare: the right neighbour is told what was called, since nothing else may show a
	// difference.
	compare bool
	opener  uint32 // the barrier that must be complete before anything is sent
	arena   uint32 // where it lies in its arena: a multiple of 64; NotEager unless it is eager
	second  bool   // the arena is the second of the two
	window  int    // chunks that one chain or series may have under way; 0: no limit, always if it is eager
	share   int    // of the window, for a series while all ranks send one: Config.Share; 0 unless it is serial
	// relay: its chunks are relayed, and all ranks know that; only if it is large.
	relay bool
	// chains divide the shards: the roots of a chain multicast one after another. Unless the operation is large each
	// shard is a chain of its own.
	chains topology.Chains
}
