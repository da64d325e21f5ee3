package hierarchy

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// entry is an operation as a group counts it, however many steps it has.
type entry struct {
	class overlap.Class
	kind  wire.Collective // with bytes, the book that it is in
	bytes int             // of a shard, or of what a root has
	own   int             // bytes that this rank contributes, or receives as its result
	begun bool            // summed counts its beginning, when the step before it ends
}

// begin notes that an operation begins.
func (o *Operations) begin(e *entry) {
	if !e.begun {
		o.meter.Begin(e.class)
	}
}

// book counts an operation that was posted whole.
func (o *Operations) book(e *entry, w *engine.Work) {
	o.posted(e.class)
	w.Book(o.books.of(e.kind, e.bytes))
	o.bytes[e.class].Add(uint64(e.own))
}

// post has a lane of the column take an operation that is one step. submit hands the operation to the lane and has
// ended called at its end; ended then calls done, if that is not nil. o.posting is held.
func (o *Operations) post(e entry, done func(), submit func(ended func()) (*engine.Work, error)) (*Work, error) {
	if o.shut != nil {
		return nil, o.shut
	}
	o.begin(&e)
	class := e.class
	w, err := submit(func() {
		o.meter.End(class)
		if done != nil {
			done()
		}
	})
	if err != nil {
		o.meter.End(e.class)
		return nil, err
	}
	o.book(&e, w)
	return &Work{Work: w, lane: o.column.Lanes[e.class]}, nil
}

// leastCalls is how many calls alike there is room for, of however many steps they are.
const leastCalls = 4

// full reports whether a class has no room for so many steps. A call is admitted as a whole: if it were refused after
// others have posted their part, it could not be called again.
func (o *Operations) full(c overlap.Class, s steps) bool {
	needs := [...]int{s.across, s.within}
	for i, l := range o.levels {
		if l.InFlight(c)+needs[i] > max(engine.MaxQueued, leastCalls*needs[i]) {
			return true
		}
	}
	return false
}
