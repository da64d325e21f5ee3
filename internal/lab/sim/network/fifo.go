package network

// fifo is a queue that keeps its memory.
type fifo[T any] struct {
	items []T
	first int
}

func (q *fifo[T]) len() int  { return len(q.items) - q.first }
func (q *fifo[T]) push(x T)  { q.items = append(q.items, x) }
func (q *fifo[T]) front() *T { return &q.items[q.first] }

// pop removes the front.
func (q *fifo[T]) pop() {
	if q.first++; q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	} else if q.first >= 64 && q.first >= len(q.items)/2 {
		q.items = q.items[:copy(q.items, q.items[q.first:])]
		q.first = 0
	}
}
