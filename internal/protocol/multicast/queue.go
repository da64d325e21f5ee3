package multicast

// queue is a first-in first-out list that reuses its memory: it takes at most four times the memory of its items at its
// fullest. The items before head have been taken.
type queue[T any] struct {
	items []T
	head  int // at most len(items)
}

func (q *queue[T]) push(v T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 { // it may never run empty
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, v)
}

func (q *queue[T]) front() (v T, ok bool) {
	if q.head == len(q.items) {
		return v, false
	}
	return q.items[q.head], true
}

func (q *queue[T]) pop() {
	q.head++
	if q.head == len(q.items) {
		q.clear()
	}
}

func (q *queue[T]) clear() { q.items, q.head = q.items[:0], 0 }

func (q *queue[T]) len() int { return len(q.items) - q.head }
