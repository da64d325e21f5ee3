package hierarchy

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// allreduceKind is the kind of operation that is no collective of a lane: its steps are, and are booked, too.
const allreduceKind = wire.Reduce + 1

// kindNames are the kinds of operations, by wire.Collective.
var kindNames = [...]string{
	wire.Barrier: "barrier", wire.Broadcast: "broadcast", wire.Allgather: "allgather",
	wire.ReduceScatter: "reduce-scatter", wire.Reduce: "reduce", allreduceKind: "allreduce",
}

// sizeClasses are the classes of sizes: a shard of a Bytes at most; the last class has no bound.
var sizeClasses = [...]struct {
	Name  string
	Bytes int
}{{"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}, {"16MiB", 16 << 20}, {"more", 0}}

// books are those of all operations, by kind and size class.
type books [len(kindNames)][len(sizeClasses)]engine.Book

// open has accounts booked by lane.
func (b *books) open(waited *[2]overlap.Ledger) {
	for kind := range b {
		for class := range b[kind] {
			switch book := &b[kind][class]; {
			case wire.Collective(kind) <= wire.Allgather:
				book.Waits = &waited[overlap.Gather]
			case wire.Collective(kind) <= wire.Reduce:
				book.Waits = &waited[overlap.Reduce]
			}
		}
	}
}

// of returns the book of a kind of operation, with a shard of so many bytes.
func (b *books) of(kind wire.Collective, bytes int) *engine.Book {
	for class := range sizeClasses[:len(sizeClasses)-1] {
		if bytes <= sizeClasses[class].Bytes {
			return &b[kind][class]
		}
	}
	return &b[kind][len(sizeClasses)-1]
}

// Times says how long operations took, from when they were posted to their end. Kinds and sizes without operations are
// left out.
type Times struct {
	Kind string `json:"kind"` // allgather, broadcast, barrier, reduce-scatter, reduce or allreduce
	// Size is the greatest shard, in the words of a size, or "more". The shard is a rank's part, of what all have in an
	// Allgather, of the result in a Reduce-Scatter, and the whole otherwise.
	Size string        `json:"size"`
	Sum  time.Duration `json:"sum_ns"`
	// Squares (s^2) is the sum of the squares, from which follows how much they differ.
	Squares float64 `json:"squares_s2"`
	// Counts are how many took as long as engine.Bound says of each bucket.
	Counts []uint64 `json:"counts"`
}

// Times returns how long operations that are done took, by kind and size. Steps of Allreduces are among those of
// other kinds, too.
func (o *Operations) Times() (all []Times) {
	for kind := range o.books {
		for class := range o.books[kind] {
			counts, sum, squares := o.books[kind][class].Times.Counts()
			if slices.Max(counts) > 0 {
				all = append(all,
					Times{Kind: kindNames[kind], Size: sizeClasses[class].Name, Sum: sum, Squares: squares, Counts: counts})
			}
		}
	}
	return all
}
