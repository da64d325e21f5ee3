package staging

// pieceBytes is how much of a shard is staged at a time: while one piece is copied, others are sent and
// received. slotBytes bounds what all ranks have of a piece together, which is the memory of a slot.
const (
	slotBytes = 64 << 20
	leastSlot = 64 << 10
	line      = 64 // what pieces are multiples of: elements of all types fit
)

var pieceBytes = 1 << 20 // less in tests

// Operation is a collective of host memory under way.
type Operation interface {
	// OnDone has f called with its outcome when it is done, or now. f does not block.
	OnDone(f func(err error))
}

// Copy is between device memory and a piece's staging memory. Rows: 0 is none.
type Copy struct {
	Device uintptr // of the first row
	Pitch  int     // bytes from one row to the next, on the device
	From   int     // where they are in staging memory, one behind another
	Row    int     // bytes of a row
	Rows   int
}

// bytes returns how many it copies.
func (c Copy) bytes() int { return c.Row * c.Rows }

// Piece is a part of an operation.
type Piece struct {
	Bytes int // of staging memory
	Shard int // of a rank, in bytes
	Out   Copy
	In    [2]Copy // an Allgather's: of the ranks before this one, and of those behind
}

func (p *Piece) in() int { return p.In[0].bytes() + p.In[1].bytes() }

// Plan is an operation on device memory as a sequence of pieces, the same on all ranks.
type Plan struct {
	Name   string // for messages
	Orders Orders // in which it has a place
	Start  Starter
	Pieces []Piece
	Move   Move // within the device
}

// Move is a copy within the device; Size 0: none.
type Move struct {
	To, From uintptr
	Size     int
}

// Starter begins the collective of a piece, of shards of so many bytes in host memory. It does not block.
type Starter func(memory []byte, shard int) (Operation, error)

// need returns how much staging memory the largest piece takes. It is the first one.
func (p *Plan) need() int { return p.Pieces[0].Bytes }

// piece is how many bytes of a shard make up a piece in a group of so many ranks.
func piece(ranks int) int { return max(line, min(pieceBytes, slotBytes/ranks/line*line)) }

// slot is the staging memory that a piece takes at most.
func slot(ranks int) int { return ranks * piece(ranks) }

// slotFor returns how large a slot is made for a piece of so many bytes: a power of two, so that few are
// outgrown and the groups of a process can use each other's, and no more than any piece takes.
func slotFor(bytes, ranks int) int {
	size := leastSlot
	for size < bytes {
		size *= 2
	}
	return min(size, max(leastSlot, slot(ranks)))
}

// cut has f make a piece of each so many bytes at most, and one of none.
func cut(bytes, most int, f func(from, n int) Piece) []Piece {
	pieces := make([]Piece, 0, max(1, (bytes+most-1)/most))
	for from := 0; from < bytes || from == 0; from += most {
		pieces = append(pieces, f(from, min(most, bytes-from)))
	}
	return pieces
}

// Allgather plans one of shards of so many bytes: the own one at send, all at recv.
func Allgather(rank, ranks int, send, recv uintptr, bytes int, start Starter) Plan {
	p := Plan{Name: "an Allgather", Orders: Gather, Start: start}
	if own := recv + uintptr(rank*bytes); own != send {
		p.Move = Move{own, send, bytes}
	}
	p.Pieces = cut(bytes, piece(ranks), func(from, n int) Piece {
		behind := rank + 1
		return Piece{
			Bytes: ranks * n, Shard: n,
			Out: Copy{send + uintptr(from), n, rank * n, n, 1},
			In: [2]Copy{
				{recv + uintptr(from), bytes, 0, n, rank},
				{recv + uintptr(behind*bytes+from), bytes, behind * n, n, ranks - behind},
			},
		}
	})
	return p
}

// ReduceScatter plans a Reduce-Scatter with a result of so many bytes; the collective leaves it in the
// own shard.
func ReduceScatter(rank, ranks int, send, recv uintptr, bytes int, start Starter) Plan {
	return Plan{Name: "a Reduce-Scatter", Orders: Reduce, Start: start,
		Pieces: cut(bytes, piece(ranks), func(from, n int) Piece {
			return Piece{
				Bytes: ranks * n, Shard: n,
				Out: Copy{send + uintptr(from), bytes, 0, n, ranks},
				In:  [2]Copy{{recv + uintptr(from), n, rank * n, n, 1}},
			}
		})}
}

// Broadcast plans one of so many bytes from root's buf to everybody's.
func Broadcast(rank, ranks, root int, buf uintptr, bytes int, start Starter) Plan {
	return Plan{Name: "a Broadcast", Orders: Gather, Start: start,
		Pieces: cut(bytes, slot(ranks), func(from, n int) Piece {
			all := Copy{buf + uintptr(from), n, 0, n, 1}
			if rank == root {
				return Piece{Bytes: n, Shard: n, Out: all}
			}
			return Piece{Bytes: n, Shard: n, In: [2]Copy{all}}
		})}
}

// ReduceTo plans a Reduce of so many bytes to root; the collective leaves the result where its input was.
func ReduceTo(rank, ranks, root int, send, recv uintptr, bytes int, start Starter) Plan {
	return Plan{Name: "a Reduce", Orders: Reduce, Start: start,
		Pieces: cut(bytes, slot(ranks), func(from, n int) Piece {
			p := Piece{Bytes: n, Shard: n, Out: Copy{send + uintptr(from), n, 0, n, 1}}
			if rank == root {
				p.In = [2]Copy{{recv + uintptr(from), n, 0, n, 1}}
			}
			return p
		})}
}

// Allreduce plans one of so many bytes; the collective leaves the result where the input was.
func Allreduce(ranks int, send, recv uintptr, bytes int, start Starter) Plan {
	return Plan{Name: "an Allreduce", Orders: Gather | Reduce, Start: start,
		Pieces: cut(bytes, slot(ranks), func(from, n int) Piece {
			return Piece{
				Bytes: n, Shard: n,
				Out: Copy{send + uintptr(from), n, 0, n, 1},
				In:  [2]Copy{{recv + uintptr(from), n, 0, n, 1}},
			}
		})}
}
