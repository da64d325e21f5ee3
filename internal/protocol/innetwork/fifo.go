package innetwork

// fifo is a queue of bounded length.
type fifo struct {
	items      []uint32
	head, size int
}

func newFifo(most int) fifo { return fifo{items: make([]uint32, most)} }

func (q *fifo) len() int { return q.size }

// push appends a number. The caller knows that there is room: it queues each at most once.
func (q *fifo) push(v uint32) {
	q.items[(q.head+q.size)%len(q.items)] = v
	q.size++
}

func (q *fifo) peek() uint32 { return q.items[q.head] }

func (q *fifo) pop() uint32 {
	v := q.items[q.head]
	q.head = (q.head + 1) % len(q.items)
	q.size--
	return v
}

// remove takes a number out, wherever it stands.
func (q *fifo) remove(v uint32) {
	if q.size > 0 && q.peek() == v { // mostly so: slots are queued and freed in order
		q.pop()
		return
	}
	for n := q.size; n > 0; n-- {
		if x := q.pop(); x != v {
			q.push(x)
		}
	}
}
