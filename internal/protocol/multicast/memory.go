package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"

// memory is the part of an operation's state that grows with the operation. When one is over, the
// next takes it, so that in the long run nothing is allocated.
type memory struct {
	// Receiving. have has shards*chunks bits.
	have    bitmap.Bitmap
	seen    []seen // of each shard
	reached []int  // furthest shard seen of each chain

	// Credit: see credit.go. Limits have one entry a shard.
	taken    []int    // how far this rank has come in each chain, in chunks
	granted  []int    // shards of each chain whose root needs no more from this rank
	child    []uint32 // limits that children have reported: see below
	reported []uint32 // what was passed on

	// Repair. These take no room before something is lost.
	asked  bitmap.Bitmap // asked for, not come by multicast
	gaps   []gap
	wanted bitmap.Bitmap // the right neighbour asked for it
	guess  bitmap.Bitmap // ... without knowing it lost: a multicast chunk answers it
}

const (
	// smallChunks is up to how many chunks an operation is small to the pool.
	smallChunks = 256
	// spareMemories is how many memories of large operations are kept for later ones. There are as many
	// more as operations in flight, at most.
	spareMemories = 2
)

// pool holds the memories of operations that are over: those of small and those of large ones.
// All those of small ones are kept, which are at most as many as there are slots.
type pool struct{ small, large []memory }

// of returns the memories for operations of so many chunks, and how many are kept.
func (l *pool) of(chunks int) (list *[]memory, keep int) {
	if chunks <= smallChunks {
		return &l.small, slots
	}
	return &l.large, spareMemories
}

// take returns memory for an operation of so many chunks.
func (l *pool) take(chunks int) memory {
	list, _ := l.of(chunks)
	n := len(*list)
	if n == 0 {
		return memory{}
	}
	m := (*list)[n-1]
	(*list)[n-1] = memory{}
	*list = (*list)[:n-1]
	return m
}

// put takes the memory of an operation of so many chunks back.
func (l *pool) put(chunks int, m *memory) {
	if list, keep := l.of(chunks); len(*list) < keep {
		*list = append(*list, *m)
	}
	*m = memory{}
}
