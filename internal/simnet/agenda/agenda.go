// Package agenda holds what is to happen in virtual time.
package agenda

import "time"

// Queue is a heap of events of type E. Events of one moment come out in the
// order in which they were pushed, so that a run depends on nothing but its
// seed. It holds values and allocates only to grow; the zero Queue is ready.
//
// The heap is 4-ary: half as deep as a binary one, and the four children of an
// entry lie side by side in memory.
type Queue[E any] struct {
	heap  []entry[E]
	order uint64
}

type entry[E any] struct {
	at    time.Duration
	order uint64
	event E
}

// Len returns how many events are to come.
func (q *Queue[E]) Len() int { return len(q.heap) }

// Peek returns when the next event is; ok is false if there is none.
func (q *Queue[E]) Peek() (at time.Duration, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

// Push adds an event at a moment, which may be any, also an earlier one than
// the last that was popped.
func (q *Queue[E]) Push(at time.Duration, e E) {
	n := entry[E]{at, q.order, e}
	q.order++
	q.heap = append(q.heap, n)
	h, i := q.heap, len(q.heap)-1
	for i > 0 {
		// A new entry is the last of its moment: it never passes an equal one.
		up := (i - 1) / 4
		if h[up].at <= at {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = n
}

// Pop takes the next event; ok is false if there is none.
func (q *Queue[E]) Pop() (at time.Duration, e E, ok bool) {
	if len(q.heap) == 0 {
		return 0, e, false
	}
	top := q.heap[0]
	last := len(q.heap) - 1
	n := q.heap[last]
	q.heap[last] = entry[E]{} // what E points to is let go
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(&n)
	}
	return top.at, top.event, true
}

// sink puts an entry in the place of the first.
func (q *Queue[E]) sink(n *entry[E]) {
	h, i := q.heap, 0
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if !h[least].before(n) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = *n
}

func (a *entry[E]) before(b *entry[E]) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}
