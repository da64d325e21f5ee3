package multicast

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// fetch has this rank's requests to its left neighbour. A request is certain if the chunks are known to have been sent,
// and speculative if it was made after a silence, here or further right.
type fetch struct {
	asked       bitmap.Bitmap // chunks that were asked for and have not come by multicast
	speculative bool          // a request was speculative
	spurious    bool          // chunks of certain requests have come by multicast, too
	repaired    bool          // chunks have come by repair
}

// request asks for the missing chunks of a range.
type request struct {
	chunkRange
	certain bool // they are known to have been sent
	again   bool // chunks that were asked for before are not left out
	pushed  bool // this rank cannot read chunks that are offered
}

// reset forgets everything, and makes room for an operation. It takes no memory before something is
// asked for.
func (f *fetch) reset(l *layout) {
	f.asked.Reset(l.all())
	f.speculative, f.spurious, f.repaired = false, false, false
}

// ask requests the missing chunks of a range, and only those. It returns how many were not asked for before.
func (f *fetch) ask(l *layout, out *outbox, r *receiver, q request) (fresh int) {
	f.speculative = f.speculative || !q.certain
	at, end := l.bit(q.shard, q.from), l.bit(q.shard, q.to)
	missing := func(bit int) bool { return !r.have.Has(bit) && (q.again || !f.asked.Has(bit)) }
	for at < end {
		for at = r.have.NextClear(at, end); at < end && !missing(at); {
			at++
		}
		first := at
		for ; at < end && missing(at); at++ {
			if f.asked.Set(at) {
				fresh++
			}
		}
		if at == first {
			break
		}
		m := l.control(wire.Fetch)
		m.Root, m.Bytes = uint16(l.rootOf(q.shard)), uint64(l.bytes)
		m.PSN, m.Count = uint32(first-l.bit(q.shard, 0)), uint32(at-first)
		if q.certain {
			m.Round |= wire.FetchKnown
		}
		if q.pushed {
			m.Round |= wire.FetchPushed
		}
		out.send(l.topo.Left(), m)
	}
	return fresh
}

// answer notes that a chunk that was asked for has come by multicast, and reports whether it was.
func (f *fetch) answer(bit int) bool { return f.asked.Clear(bit) }
