// Package agenda holds the events to come in virtual time.
package agenda

import (
	"math/bits"
	"time"
)

// Queue holds the events to come: values of type E, each at its moment. Events
// of one moment come out in the order in which they were pushed, so that a run
// depends on nothing but its seed. The queue allocates only to grow; the zero
// Queue is ready.
//
// It is a calendar: the next quarter of a millisecond is divided into slots of
// 64 ns. The events of a slot lie in no order until their slot is the current
// one; then they are in a heap. Events behind all slots are in a heap, too.
// With a hundred thousand events to come in a busy network the first heap has
// some hundred and stays in the processor's first cache.
type Queue[E any] struct {
	near   heap[E]      // up to the end of the current slot
	slots  [][]entry[E] // those after it, modulo their number
	used   [count / 64]uint64
	inside int          // events in slots
	spare  [][]entry[E] // emptied slots
	far    heap[E]      // behind the slots, when they were pushed
	now    time.Duration
	order  uint64
}

const (
	count = 1 << 12 // slots
	width = 6       // bits of a moment within a slot
)

// Len returns how many events are to come.
func (q *Queue[E]) Len() int { return len(q.near) + q.inside + len(q.far) }

// Peek returns when the next event is; ok is false if there is none.
func (q *Queue[E]) Peek() (at time.Duration, ok bool) {
	if len(q.near) == 0 && !q.turn() {
		return 0, false
	}
	return q.near[0].at, true
}

// Push adds an event at a moment, which may be any, also an earlier one than
// the last that was popped.
func (q *Queue[E]) Push(at time.Duration, e E) {
	n := entry[E]{at, q.order, e}
	q.order++
	slot := at >> width
	switch {
	case slot <= q.now:
		q.near.push(&n)
	case slot < q.now+count:
		if q.slots == nil {
			q.slots = make([][]entry[E], count)
		}
		i := slot % count
		if k := len(q.spare); k > 0 && q.slots[i] == nil {
			q.slots[i] = q.spare[k-1]
			q.spare = q.spare[:k-1]
		}
		q.slots[i] = append(q.slots[i], n)
		q.used[i/64] |= 1 << (i % 64)
		q.inside++
	default:
		q.far.push(&n)
	}
}

// Pop takes the next event; ok is false if there is none.
func (q *Queue[E]) Pop() (at time.Duration, e E, ok bool) {
	if len(q.near) == 0 && !q.turn() {
		return 0, e, false
	}
	n := q.near.pop()
	return n.at, n.event, true
}

// turn makes the next slot with events the current one; false: there is none.
func (q *Queue[E]) turn() bool {
	if q.inside == 0 && len(q.far) == 0 {
		return false
	}
	next := q.next()
	if len(q.far) > 0 && (next < 0 || q.far[0].at>>width < next) {
		next = q.far[0].at >> width
	}
	q.now = next
	if i := next % count; q.used[i/64]>>(i%64)&1 != 0 {
		if cap(q.near) > 0 {
			q.spare = append(q.spare, q.near)
		}
		q.near, q.slots[i] = q.slots[i], nil
		q.near.order()
		q.used[i/64] &^= 1 << (i % 64)
		q.inside -= len(q.near)
	}
	for len(q.far) > 0 && q.far[0].at>>width <= next {
		n := q.far.pop()
		q.near.push(&n)
	}
	return true
}

// next returns the first slot after the current one that has events, -1 if
// none has.
func (q *Queue[E]) next() time.Duration {
	if q.inside == 0 {
		return -1
	}
	for slot := q.now + 1; ; slot += 64 - slot%64 {
		if word := q.used[slot%count/64] >> (slot % 64); word != 0 {
			return slot + time.Duration(bits.TrailingZeros64(word))
		}
	}
}
