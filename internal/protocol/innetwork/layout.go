package innetwork

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// layout says how an operation lies in the slots of the stripes. A shard is cut
// into chunks and these into blocks of consecutive chunks. Row i is block i of owner
// 0, then of owner 1, and so on, so that no owner's link is hit by all at once;
// rows go to the stripes in turn. A Reduce is the same with one owner, in the stripes of its track.
type layout struct {
	owners int
	lead   int // the first owner
	low    int // the first stripe that is used
	width  int // so many are
	first  int // stripe of row 0, from low
	bytes  int // of a shard
	step   int // bytes of a full chunk
	// head is how many chunks go by stripe 0, before rows: of a Reduce with a track one, so that
	// nodes see whether ranks agree.
	head   int
	chunks int // of a shard, those in rows
	block  int // chunks of a full block
	rows   int
}

// keeps reports whether the owner of a result keeps its own contribution and adds it last. A rank alone
// does not: then there would be nothing to send.
func (t *Terms) keeps(typ reduce.Type) bool { return t.Ranks > 1 && typ.OwnLast() }

// chunkElements returns how many elements of a type a chunk holds: so many that
// a slot has room for their partial result.
func (t *Terms) chunkElements(typ reduce.Type) int {
	return min(t.Chunk/typ.Size(), t.accumulators()/typ.Accumulator().Size())
}

// accumulators is the room of a slot for a partial result, in bytes. For halves it is twice as long as a chunk. The
// chunks are shorter instead in a tree, where a chunk carries the partial result, and for 8-bit floats.
func (t *Terms) accumulators() int {
	if t.Wide {
		return t.Chunk
	}
	return 2 * t.Chunk
}

// layoutOf returns where operation number seq lies.
func (t *Terms) layoutOf(seq uint32, o *collective.Op) layout {
	l := layout{
		owners: t.Ranks, width: t.Stripes / t.tracks(),
		bytes: o.Count * o.Type.Size(), step: t.chunkElements(o.Type) * o.Type.Size(),
		block: max(1, BlockBytes/t.Chunk),
	}
	if t.tracks() == 1 { // else every operation has something in stripe 0
		l.first = int(seq % uint32(l.width))
	}
	if root, one := o.To.Root(); one {
		l.owners, l.lead = 1, root
		l.low = root % t.tracks() * l.width
	}
	l.chunks = (l.bytes + l.step - 1) / l.step
	if l.owners < t.Ranks && t.tracks() > 1 {
		l.head = min(1, l.chunks)
		l.chunks -= l.head
	}
	l.rows = (l.chunks + l.block - 1) / l.block
	return l
}

// rowBlock returns how many chunks the blocks of a row have.
func (l *layout) rowBlock(row int) int { return min(l.block, l.chunks-row*l.block) }

// firstRow returns the first row of a stripe; it may be past the last one.
func (l *layout) firstRow(stripe int) int {
	if stripe -= l.low; stripe < 0 || stripe >= l.width {
		return l.rows
	}
	return (stripe - l.first + l.width) % l.width
}

// ahead returns how many slots of the operation are before its rows in a stripe.
func (l *layout) ahead(stripe int) int {
	if stripe == 0 {
		return l.head
	}
	return 0
}

// slots returns how many slots the operation takes in a stripe.
func (l *layout) slots(stripe int) int { return l.ahead(stripe) + l.inRows(stripe) }

// inRows returns how many of them are in rows.
func (l *layout) inRows(stripe int) int {
	first := l.firstRow(stripe)
	if first >= l.rows {
		return 0
	}
	n := (l.rows - first + l.width - 1) / l.width // rows
	last := first + (n-1)*l.width
	return ((n-1)*l.block + l.rowBlock(last)) * l.owners
}

// chunk is what a slot carries.
type chunk struct {
	owner  int
	offset int // bytes
	bytes  int
	run    int // chunks that follow in the same block, this one included
}

// at returns what slot i of the operation in a stripe carries.
func (l *layout) at(stripe, i int) chunk {
	if i -= l.ahead(stripe); i < 0 {
		return chunk{owner: l.lead, bytes: min(l.step, l.bytes), run: 1}
	}
	row := l.firstRow(stripe) + i/(l.block*l.owners)*l.width
	i %= l.block * l.owners
	size := l.rowBlock(row)
	within := i % size
	c := chunk{owner: l.lead + i/size, offset: (l.head + row*l.block + within) * l.step, run: size - within}
	c.bytes = min(l.step, l.bytes-c.offset)
	return c
}

// seek returns the first slot from i on that owner owns; slots(stripe) if there is none.
func (l *layout) seek(stripe, i, owner int) int {
	ahead := l.ahead(stripe)
	if owner -= l.lead; owner < 0 || owner >= l.owners {
		return l.slots(stripe)
	}
	if i < ahead {
		return i
	}
	return ahead + l.seekRows(stripe, i-ahead, owner)
}

// seekRows is seek among the slots in rows, with owners counted from the first.
func (l *layout) seekRows(stripe, i, owner int) int {
	end := l.inRows(stripe)
	for i < end {
		full := l.block * l.owners
		row := l.firstRow(stripe) + i/full*l.width
		size := l.rowBlock(row)
		start := i / full * full
		switch at := (i - start) / size; {
		case at == owner:
			return i
		case at < owner:
			return start + owner*size
		}
		i = start + full
	}
	return end
}

// shapeOf is a digest of the operation's length, number and owners, and of the call that it is a step of. Calls
// that differ in nothing but the root have different ones.
func shapeOf(o *collective.Op, seq uint32) uint16 {
	h := (uint64(o.Count)+1)*0x9e3779b97f4a7c15 ^ uint64(seq)*0xd1b54a32d192ed03 ^ uint64(o.To)*0x8cb92ba72f3d8dd7
	return (uint16(h>>40) ^ o.Call.Digest()) % wire.MaxSlotShape
}
