package staging

import (
	"slices"
	"sync"
	"time"
)

// Orders are the orders of operations in which one has a place. All ranks post theirs to each in the same
// order.
type Orders uint8

// The orders of a group.
const (
	Gather Orders = 1 << iota
	Reduce
)

// turn is a collective that is to begin.
type turn struct {
	orders Orders
	open   bool // it may begin: what it takes is there
	// start begins it. It reports whether it must be tried again later.
	start func() (again bool)
}

// again is when what could not begin is tried again.
const again = time.Millisecond

// turns begins collectives in the order in which they were added: each once it is open, and all that were
// added before and have an order in common with it have begun.
type turns struct {
	mu      sync.Mutex
	queue   []*turn
	free    bool // order does not matter any more: the group has failed
	wake    chan struct{}
	stopped chan struct{}
	ended   sync.WaitGroup
}

func newTurns() *turns {
	t := &turns{wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	t.ended.Go(t.run)
	return t
}

// add queues a turn, which is open or will be opened.
func (t *turns) add(one *turn) {
	t.mu.Lock()
	t.queue = append(t.queue, one)
	t.mu.Unlock()
	t.look()
}

// opened says that a turn may begin. It does not block.
func (t *turns) opened(one *turn) {
	t.mu.Lock()
	one.open = true
	t.mu.Unlock()
	t.look()
}

// waits reports whether something with such an order has not begun.
func (t *turns) waits(orders Orders) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.queue, func(one *turn) bool { return one.orders&orders != 0 })
}

// abandon lets everything begin that is open, whatever was added before.
func (t *turns) abandon() {
	t.mu.Lock()
	t.free = true
	t.mu.Unlock()
	t.look()
}

func (t *turns) look() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// next returns whose turn it is, or nil. It stays in the queue until begun.
func (t *turns) next() *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	var before Orders
	for _, one := range t.queue {
		if one.open && (before&one.orders == 0 || t.free) {
			return one
		}
		before |= one.orders
	}
	return nil
}

func (t *turns) begun(one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, one); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
}

func (t *turns) run() {
	for {
		one := t.next()
		var later <-chan time.Time
		if one != nil {
			if !one.start() {
				t.begun(one)
				continue
			}
			later = time.After(again)
		}
		select {
		case <-t.wake:
		case <-later:
		case <-t.stopped:
			t.abandon()
			for one := t.next(); one != nil; one = t.next() {
				one.start()
				t.begun(one)
			}
			return
		}
	}
}

// stop has what is open begin, which fails in a group that is closed, and nothing after that.
func (t *turns) stop() {
	close(t.stopped)
	t.ended.Wait()
}
