package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"

// offer is chunks that the left neighbour has, in memory that this rank may read.
type offer struct {
	chunkRange
	addr uint64 // where the first chunk lies
	key  uint32
}

// skip takes the first n chunks off.
func (o *offer) skip(n, chunk int) {
	o.from += n
	o.addr += uint64(n * chunk)
}

// pulls has the chunks that the left neighbour has offered, and the ones that are being read. The neighbour keeps its
// buffer until this rank is done, so this rank is not done before its last read has ended.
type pulls struct {
	offered bitmap.Bitmap // chunks of offers and of reads under way; no two have the same
	offers  queue[offer]
	reading int // reads under way
}

// reset forgets everything, and makes room for an operation. It takes no memory before something is offered.
func (q *pulls) reset(l *layout) {
	q.offered.Reset(l.all())
	q.offers.clear()
	q.reading = 0
}

// take takes an offer, without chunks that have come or were offered before, and returns how many offers there are
// more.
func (q *pulls) take(l *layout, r *receiver, o offer) (more int) {
	lacks := func(psn int) bool {
		bit := l.bit(o.shard, psn)
		return !r.have.Has(bit) && !q.offered.Has(bit)
	}
	for end := o.to; o.from < end; {
		n := 0
		for ; o.from+n < end && lacks(o.from+n); n++ {
			q.offered.Set(l.bit(o.shard, o.from+n))
		}
		if n > 0 {
			o.to = o.from + n
			q.offers.push(o)
			more++
		}
		o.skip(n+1, l.chunk)
	}
	return more
}

// next returns up to most chunks that are to be read next: of the oldest offer, as far as they have not come otherwise.
// fewer is how many offers nothing is left of. Without an offer o has no chunks.
func (q *pulls) next(l *layout, r *receiver, most int) (o offer, fewer int) {
	for q.offers.len() > 0 {
		head := &q.offers.items[q.offers.head]
		for head.from < head.to && r.have.Has(l.bit(head.shard, head.from)) {
			q.offered.Clear(l.bit(head.shard, head.from))
			head.skip(1, l.chunk)
		}
		if head.from == head.to {
			q.offers.pop()
			fewer++
			continue
		}
		first := l.bit(head.shard, head.from)
		o = *head
		o.to = o.from + r.have.NextSet(first, first+min(most, head.to-head.from)) - first
		return o, fewer
	}
	return offer{}, fewer
}

// begin notes that the first n chunks of the oldest offer are being read, and returns how many offers nothing is left
// of.
func (q *pulls) begin(l *layout, n int) (fewer int) {
	q.reading++
	head := &q.offers.items[q.offers.head]
	if head.skip(n, l.chunk); head.from < head.to {
		return 0
	}
	q.offers.pop()
	return 1
}

// end notes that a read has ended.
func (q *pulls) end(l *layout, read chunkRange) {
	q.reading--
	q.clear(l, read)
}

// clear notes that chunks are neither offered nor being read.
func (q *pulls) clear(l *layout, chunks chunkRange) {
	for psn := chunks.from; psn < chunks.to; psn++ {
		q.offered.Clear(l.bit(chunks.shard, psn))
	}
}

// forget takes the oldest offer out, if there is one, and reports whether there was.
func (q *pulls) forget(l *layout) (o offer, ok bool) {
	if o, ok = q.offers.front(); !ok {
		return o, false
	}
	q.offers.pop()
	q.clear(l, o.chunkRange)
	return o, true
}

// drop forgets all offers, and returns how many those were. Reads under way go on.
func (q *pulls) drop(l *layout) (fewer int) {
	for ; ; fewer++ {
		if _, ok := q.forget(l); !ok {
			return fewer
		}
	}
}
