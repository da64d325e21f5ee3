package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"

// receiver is which chunks of an operation are here.
type receiver struct {
	have    bitmap.Bitmap // of all shards; the own one is there from Post on
	seen    []seen        // of each shard
	current int           // shard of the last chunk that arrived
	since   Time          // when the first chunk arrived, 0: none has
}

// seen counts the chunks of a shard that have arrived.
type seen struct {
	end   uint32 // first chunk above all that have arrived
	count uint32 // of chunks that have arrived, as many as have has bits of the shard; at most end
}

// reset forgets everything, and makes room for an operation.
func (r *receiver) reset(l *layout) {
	r.have.Reset(l.all())
	r.seen = zeroed(r.seen, l.shards)
	r.current, r.since = 0, 0
}

// own notes that the own shard is here.
func (r *receiver) own(l *layout) {
	if l.own < 0 {
		return
	}
	for k := range l.chunks {
		r.have.Set(l.bit(l.own, k))
	}
	r.seen[l.own] = seen{uint32(l.chunks), uint32(l.chunks)}
}

// take notes that a chunk has arrived, and reports whether it is new. end is the first chunk above
// all of its shard that had arrived before.
func (r *receiver) take(l *layout, now Time, shard, psn int) (end int, ok bool) {
	if !r.have.Set(l.bit(shard, psn)) {
		return 0, false
	}
	if r.since == 0 {
		r.since = now
	}
	r.current = shard
	of := &r.seen[shard]
	end = int(of.end)
	of.count++
	of.end = max(of.end, uint32(psn)+1)
	return end, true
}

// full reports whether every chunk is here.
func (r *receiver) full() bool { return r.have.Full() }

// missing returns how many chunks are not here.
func (r *receiver) missing() int { return r.have.Len() - r.have.Count() }

// whole reports whether a shard is here.
func (r *receiver) whole(l *layout, shard int) bool { return int(r.seen[shard].count) == l.chunks }

// lacks reports whether the chunks of a range are not all here.
func (r *receiver) lacks(l *layout, g chunkRange) bool {
	end := l.bit(g.shard, g.to)
	return r.have.NextClear(l.bit(g.shard, g.from), end) < end
}

// lackedTo returns the first chunk of a shard from one on that has arrived, or its end.
func (r *receiver) lackedTo(l *layout, shard, from int) int {
	end := int(r.seen[shard].end)
	if from >= end {
		return l.chunks
	}
	return r.have.NextSet(l.bit(shard, from), l.bit(shard, end)) - l.bit(shard, 0)
}

// next guesses which chunk arrives next: the one above all that have come of the last chunk's shard, or of the next
// shard that lacks its end.
func (r *receiver) next(l *layout) (shard, psn int, ok bool) {
	s := r.current
	for range l.shards {
		if end := int(r.seen[s].end); end < l.chunks {
			return s, end, true
		}
		s = (s + 1) % l.shards
	}
	return 0, 0, false
}

// incomplete returns the roots of the first shards in [from, to) that are not here, so many at
// most.
func (r *receiver) incomplete(l *layout, from, to, most int) (roots []int) {
	for s := from; s < to && len(roots) < most; s++ {
		if !r.whole(l, s) {
			roots = append(roots, l.rootOf(s))
		}
	}
	return roots
}
