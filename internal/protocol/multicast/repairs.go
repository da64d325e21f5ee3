package multicast

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// mostOffered is how many chunks an offer has at most.
const mostOffered = 64

// Repair names a chunk for the right neighbour.
type Repair struct {
	To      int
	Message wire.Control
	Place   Place // where its bytes are
	// Offer is how many chunks from this one on, which lie one behind the other, the neighbour may as well read from
	// there; 0: none.
	Offer int
	Span  int // bytes of those
}

// OfferAt returns the message that offers chunks at an address of this rank's memory, which a device reads with the
// key.
func (r *Repair) OfferAt(addr uint64, key uint32) wire.Control {
	m := r.Message
	m.Kind, m.Count, m.Bytes, m.Arena = wire.Offer, uint32(r.Offer), addr, key
	return m
}

// repairs is what the right neighbour has asked this rank for and has not been sent.
type repairs struct {
	wanted      bitmap.Bitmap // chunks that it wants; the ones that are here are owed
	speculative bitmap.Bitmap // wanted chunks that are not here, and that a multicast chunk answers as well
	owed        int           // chunks that it wants and that are here
	from        int           // no owed chunk is before this one
}

// reset forgets everything, and makes room for an operation. It takes no memory before something is
// asked for.
func (q *repairs) reset(l *layout) {
	q.wanted.Reset(l.all())
	q.speculative.Reset(l.all())
	q.owed, q.from = 0, 0
}

// want takes a request, and returns how many more chunks are owed.
func (q *repairs) want(l *layout, r *receiver, chunks chunkRange, certain bool) (more int) {
	before := q.owed
	for i := chunks.from; i < chunks.to; i++ {
		bit := l.bit(chunks.shard, i)
		here := r.have.Has(bit)
		if q.wanted.Set(bit) && here {
			q.owe(bit)
		}
		if certain || here {
			q.speculative.Clear(bit)
		} else {
			q.speculative.Set(bit)
		}
	}
	return q.owed - before
}

// owe notes a chunk that is wanted and here.
func (q *repairs) owe(bit int) {
	if q.owed == 0 || bit < q.from {
		q.from = bit
	}
	q.owed++
}

// arrived takes a chunk that has just arrived, by repair or not, and returns how many more are
// owed.
func (q *repairs) arrived(bit int, repair bool) (more int) {
	if q.wanted.Count() == 0 || !q.wanted.Has(bit) {
		return 0
	}
	if q.speculative.Clear(bit) && !repair {
		q.wanted.Clear(bit) // the multicast that brought it here has brought it to the neighbour, too
		return 0
	}
	q.owe(bit)
	return 1
}

// next returns the first chunk that is owed; there is one.
func (q *repairs) next(r *receiver) (bit int) {
	i, n := q.from, q.wanted.Len()
	for i = q.wanted.NextSet(i, n); !r.have.Has(i); {
		i = q.wanted.NextSet(i+1, n)
	}
	q.from = i
	return i
}

// run returns how many chunks from an owed one on are owed, up to most.
func (q *repairs) run(r *receiver, bit, most int) (n int) {
	for n < most && q.wanted.Has(bit+n) && r.have.Has(bit+n) {
		n++
	}
	return n
}

// sent notes that a chunk is on its way, and reports whether it was owed.
func (q *repairs) sent(bit int) bool {
	if !q.wanted.Clear(bit) {
		return false
	}
	q.owed--
	return true
}

// drop forgets what the neighbour wants, and returns how many chunks are owed no longer.
func (q *repairs) drop() (fewer int) {
	fewer, q.owed = q.owed, 0
	q.wanted.Reset(q.wanted.Len())
	q.speculative.Reset(q.speculative.Len())
	return fewer
}

// backlog is the chunks owed over all operations, so that a search for a repair need not look at every operation.
type backlog struct {
	chunks int    // owed, of all operations
	first  uint32 // no operation before this one owes any; without meaning while chunks is 0
}

// add notes that an operation owes more chunks.
func (b *backlog) add(seq uint32, more int) {
	if more == 0 {
		return
	}
	if b.chunks == 0 || wire.Before(seq, b.first) {
		b.first = seq
	}
	b.chunks += more
}

func (b *backlog) remove(fewer int) { b.chunks -= fewer }
