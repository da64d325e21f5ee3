package staging

// pieceBytes is how much of a shard is staged at a time: while one piece is copied, others are sent and
// received. slotBytes bounds what all ranks have of a piece together, which is the memory of a slot.
const (
	slotBytes = 64 << 20
	line      = 64 // what pieces are multiples of: elements of all types fit
)

var pieceBytes = 1 << 20 // less in tests

// Operation is a collective of host memory under way.
type Operation interface {
	// OnDone has f called with its outcome when it is done, or now. f does not block.
	OnDone(f func(err error))
}

// Copy is between device memory and bytes from up to to of a piece's staging memory.
type Copy struct {
	Device   uintptr
	From, To int
}

// Piece is a part of an operation.
type Piece struct {
	Bytes int // of staging memory
	Out   []Copy
	In    []Copy
	// Start begins the collective of the piece. It does not block.
	Start func(memory []byte) (Operation, error)
}

// Plan is an operation on device memory as a sequence of pieces, the same on all ranks.
type Plan struct {
	Name   string // for messages
	Orders Orders // in which it has a place
	Pieces []Piece
	Move   Move // within the device
}

// Move is a copy within the device; Size 0: none.
type Move struct {
	To, From uintptr
	Size     int
}

// Starter begins a collective of shards of so many bytes in host memory.
type Starter func(memory []byte, shard int) (Operation, error)

// piece is how many bytes of a shard make up a piece in a group of so many ranks.
func piece(ranks int) int { return max(line, min(pieceBytes, slotBytes/ranks/line*line)) }

// slot is the staging memory that a piece takes at most.
func slot(ranks int) int { return ranks * piece(ranks) }

// cut calls f for each piece of so many bytes at most, and once if there are none.
func cut(bytes, most int, f func(from, n int)) {
	f(0, min(bytes, most))
	for from := most; from < bytes; from += most {
		f(from, min(most, bytes-from))
	}
}

// Allgather plans one of shards of so many bytes: the own one at send, all at recv.
func Allgather(rank, ranks int, send, recv uintptr, bytes int, start Starter) Plan {
	p := Plan{Name: "an Allgather", Orders: Gather}
	if own := recv + uintptr(rank*bytes); own != send {
		p.Move = Move{own, send, bytes}
	}
	cut(bytes, piece(ranks), func(from, n int) {
		one := Piece{
			Bytes: ranks * n,
			Out:   []Copy{{send + uintptr(from), rank * n, (rank + 1) * n}},
			Start: func(memory []byte) (Operation, error) { return start(memory, n) },
		}
		for r := range ranks {
			if r != rank {
				one.In = append(one.In, Copy{recv + uintptr(r*bytes+from), r * n, (r + 1) * n})
			}
		}
		p.Pieces = append(p.Pieces, one)
	})
	return p
}

// ReduceScatter plans one whose result has so many bytes; the collective leaves it in the own shard.
func ReduceScatter(rank, ranks int, send, recv uintptr, bytes int, start Starter) Plan {
	p := Plan{Name: "a Reduce-Scatter", Orders: Reduce}
	cut(bytes, piece(ranks), func(from, n int) {
		one := Piece{
			Bytes: ranks * n,
			In:    []Copy{{recv + uintptr(from), rank * n, (rank + 1) * n}},
			Start: func(memory []byte) (Operation, error) { return start(memory, n) },
		}
		for r := range ranks {
			one.Out = append(one.Out, Copy{send + uintptr(r*bytes+from), r * n, (r + 1) * n})
		}
		p.Pieces = append(p.Pieces, one)
	})
	return p
}

// Broadcast plans one of so many bytes from root's buf to everybody's.
func Broadcast(rank, ranks, root int, buf uintptr, bytes int, start Starter) Plan {
	p := Plan{Name: "a Broadcast", Orders: Gather}
	cut(bytes, slot(ranks), func(from, n int) {
		one := Piece{Bytes: n, Start: func(memory []byte) (Operation, error) { return start(memory, n) }}
		all := []Copy{{buf + uintptr(from), 0, n}}
		if rank == root {
			one.Out = all
		} else {
			one.In = all
		}
		p.Pieces = append(p.Pieces, one)
	})
	return p
}

// Allreduce plans one of so many bytes; the collective leaves the result where the input was.
func Allreduce(ranks int, send, recv uintptr, bytes int, start Starter) Plan {
	p := Plan{Name: "an Allreduce", Orders: Gather | Reduce}
	cut(bytes, slot(ranks), func(from, n int) {
		p.Pieces = append(p.Pieces, Piece{
			Bytes: n,
			Out:   []Copy{{send + uintptr(from), 0, n}},
			In:    []Copy{{recv + uintptr(from), 0, n}},
			Start: func(memory []byte) (Operation, error) { return start(memory, n) },
		})
	})
	return p
}
