package aggregator

import "sync"

// budget is the slot memory that jobs share, in bytes.
type budget struct {
	total int64

	mu    sync.Mutex
	taken int64
}

// take reserves memory if there is as much.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.total-b.taken {
		return false
	}
	b.taken += n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

func (b *budget) free() int64 { return b.total - b.used() }
