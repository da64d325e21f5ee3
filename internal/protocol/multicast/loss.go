package multicast

import "slices"

// gap is a range of chunks that seem lost: later ones have arrived. It is asked for when due, unless the chunks arrive
// before.
type gap struct {
	chunkRange
	due Time
}

// maxGaps bounds the list. Gaps beyond it, once closed gaps are struck off, are asked for at once.
const maxGaps = 256

// loss has the chunks of an operation that seem lost.
type loss struct {
	gaps []gap // in the order in which they fall due, no two the same; at most maxGaps
	// reached is, for each chain with several roots, the furthest shard with a chunk that has come; before that, the
	// chain's first shard.
	reached []int
}

// reset forgets everything, and makes room for an operation.
func (o *loss) reset(l *layout) {
	o.gaps, o.reached = o.gaps[:0], o.reached[:0]
	if l.mode.chains.M < l.mode.chains.Size {
		for ch := range l.mode.chains.M {
			o.reached = append(o.reached, l.mode.chains.Head(ch))
		}
	}
}

// noted reports whether a gap of these chunks is in the list: each chunk of a later operation shows the same one.
func (o *loss) noted(chunks chunkRange) bool {
	return slices.ContainsFunc(o.gaps, func(g gap) bool { return g.chunkRange == chunks })
}

// prune strikes off the gaps that have closed, if the list is full.
func (o *loss) prune(l *layout, r *receiver) {
	if o.full() {
		o.gaps = slices.DeleteFunc(o.gaps, func(g gap) bool { return !r.lacks(l, g.chunkRange) })
	}
}

// full reports whether the list has no room.
func (o *loss) full() bool { return len(o.gaps) == maxGaps }

// note puts a gap into the list, which has room. It falls due after those noted before, though how
// long a gap may stay open can have shrunk since.
func (o *loss) note(g gap) {
	if n := len(o.gaps); n > 0 {
		g.due = max(g.due, o.gaps[n-1].due)
	}
	o.gaps = append(o.gaps, g)
}

// delay gives all gaps more time.
func (o *loss) delay(more Time) {
	for i := range o.gaps {
		o.gaps[i].due += more
	}
}

// next returns when the first gap falls due, and false if there is none.
func (o *loss) next() (Time, bool) {
	if len(o.gaps) == 0 {
		return 0, false
	}
	return o.gaps[0].due, true
}

// drop removes the gaps that are due.
func (o *loss) drop(now Time) {
	n := 0
	for n < len(o.gaps) && o.gaps[n].due <= now {
		n++
	}
	o.gaps = append(o.gaps[:0], o.gaps[n:]...)
}

// passed notes that the root of a shard multicasts, so that all before it in its chain have sent everything. The shards
// [from, shard) were not known to be sent before.
func (o *loss) passed(l *layout, shard int) (from int) {
	if len(o.reached) == 0 {
		return shard // nobody is before it
	}
	reached := &o.reached[l.mode.chains.Of(shard)]
	from = *reached
	*reached = max(from, shard)
	return from
}
