package agenda

import "time"

// entry is an event at its place: by moment, then by order.
type entry[E any] struct {
	at    time.Duration
	order uint64
	event E
}

func (a *entry[E]) before(b *entry[E]) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// heap is a 4-ary heap: half as deep as a binary one, and the four children of
// an entry lie side by side in memory.
type heap[E any] []entry[E]

func (h *heap[E]) push(n *entry[E]) {
	*h = append(*h, *n)
	s, i := *h, len(*h)-1
	for i > 0 {
		up := (i - 1) / 4
		if !n.before(&s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = *n
}

// pop takes the first entry of a heap that has one.
func (h *heap[E]) pop() entry[E] {
	s := *h
	top, last := s[0], len(s)-1
	n := s[last]
	s[last] = entry[E]{} // what E points to is let go
	*h = s[:last]
	if last > 0 {
		h.sink(0, &n)
	}
	return top
}

// order makes a heap of entries in any order.
func (h *heap[E]) order() {
	for i := (len(*h) - 2) / 4; i >= 0; i-- {
		n := (*h)[i]
		h.sink(i, &n)
	}
}

// sink puts an entry into a place or below.
func (h *heap[E]) sink(i int, n *entry[E]) {
	s := *h
	for {
		first := 4*i + 1
		if first >= len(s) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(s)); c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if !s[least].before(n) {
			break
		}
		s[i] = s[least]
		i = least
	}
	s[i] = *n
}
