package multicast

// memory is the components of an operation that grow with its size. When one is over, the
// next takes them, so that in the long run nothing is allocated.
type memory struct {
	receiver receiver
	loss     loss
	fetch    fetch
	repairs  repairs
	pulls    pulls
	credit   credit
}

// prepare makes room for a new operation.
func (m *memory) prepare(l *layout) {
	m.receiver.reset(l)
	m.credit.reset(l)
	m.loss.reset(l)
	m.fetch.reset(l)
	m.repairs.reset(l)
	m.pulls.reset(l)
}

const (
	// smallChunks is up to how many chunks an operation is small to the pool.
	smallChunks = 256
	// spareMemories is how many memories of large operations are kept for later ones. There are as
	// many more as operations in flight, at most.
	spareMemories = 2
)

// pool holds the memories of operations that are over: those of small and those of large ones. All
// those of small ones are kept, which are at most as many as operations are known.
type pool struct{ small, large []memory }

// of returns the memories for operations of so many chunks, and how many are kept.
func (l *pool) of(chunks int) (list *[]memory, keep int) {
	if chunks <= smallChunks {
		return &l.small, maxKnown
	}
	return &l.large, spareMemories
}

// take gives memory, if there is some, to an operation of so many chunks, which has none.
func (l *pool) take(chunks int, m *memory) {
	list, _ := l.of(chunks)
	if n := len(*list) - 1; n >= 0 {
		*m = (*list)[n]
		(*list)[n] = memory{}
		*list = (*list)[:n]
	}
}

// put takes the memory of an operation of so many chunks back.
func (l *pool) put(chunks int, m *memory) {
	if list, keep := l.of(chunks); len(*list) < keep {
		*list = append(*list, *m)
	}
	*m = memory{}
}
