package engine

import "github.com/torch-mcast/torch-mcast/internal/protocol/multicast"

// GatherOp is an operation for the gather lane. Buffers may live in C memory.
type GatherOp struct {
	// Recv takes the whole result: Bytes for a Broadcast, P*Bytes for an Allgather, or as much as its Stride and Slots
	// need; nothing else in it is touched. Send may be its own slot of Recv; otherwise it is copied there, too.
	Recv []byte
	// Whole is the length of the result where Recv is only a part; 0: Recv is the whole result.
	Whole int
	multicast.Op
	// Send is the own shard, Bytes long; nil on the receivers of a Broadcast.
	Send []byte
	// After, if not nil, must be done, and well, before the operation begins; those
	// posted later stay behind it. It fails only with the whole group. Who completes it nudges the lane.
	After *Work
}
