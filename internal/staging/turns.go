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
	open   bool // it may begin: its input is there
	what   interface {
		// begin begins it, or ends it with the error with which the group has failed. It reports whether it
		// must be tried again later, which one that has failed need not.
		begin(failed error) (again bool)
	}
}

// again is when what could not begin is tried again.
const again = time.Millisecond

// turns begins collectives in the order in which they were added: each once it is open, and all that were
// added before and have an order in common with it have begun. Once the group has failed the order does not
// matter any more: a turn that is open, or opened later, ends with the failure at once.
type turns struct {
	mu     sync.Mutex
	queue  []*turn
	failed error
	wake   chan struct{}
	ended  sync.WaitGroup
}

func newTurns() *turns {
	t := &turns{wake: make(chan struct{}, 1)}
	t.ended.Go(t.run)
	return t
}

// add queues a turn, which is open or will be opened.
func (t *turns) add(one *turn) {
	t.mu.Lock()
	failed := t.failed
	if failed == nil {
		t.queue = append(t.queue, one)
	}
	t.mu.Unlock()
	switch {
	case failed == nil:
		t.look()
	case one.open:
		one.what.begin(failed)
	}
}

// opened says that a turn may begin. It does not block.
func (t *turns) opened(one *turn) {
	t.mu.Lock()
	failed := t.failed
	one.open = failed == nil // else it ends here, and nowhere else
	t.mu.Unlock()
	if failed != nil {
		one.what.begin(failed)
		return
	}
	t.look()
}

// waits reports whether something with such an order has not begun, and will.
func (t *turns) waits(orders Orders) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed == nil && slices.ContainsFunc(t.queue, func(one *turn) bool { return one.orders&orders != 0 })
}

// fail says that the group has failed, and why; the first time counts.
func (t *turns) fail(err error) {
	t.mu.Lock()
	if t.failed == nil {
		t.failed = err
	}
	t.mu.Unlock()
	t.look()
}

// failure returns why the group has failed, or nil.
func (t *turns) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *turns) look() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// next returns the turn that is due, or nil. It stays in the queue until begun. Nothing begins of orders that
// are full.
func (t *turns) next(full Orders) (one *turn, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.queue {
		if one.open && (full&one.orders == 0 || t.failed != nil) {
			return one, t.failed
		}
		full |= one.orders
	}
	return nil, t.failed
}

func (t *turns) begun(one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, one); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
}

// run begins turns as they are open, until the group has failed and all open ones have ended.
func (t *turns) run() {
	for {
		var full Orders // of these one must be tried again
		one, failed := t.next(full)
		for ; one != nil; one, failed = t.next(full) {
			if one.what.begin(failed) {
				full |= one.orders
			} else {
				t.begun(one)
			}
		}
		if failed != nil {
			return
		}
		var later <-chan time.Time
		if full != 0 {
			later = time.After(again)
		}
		select {
		case <-t.wake:
		case <-later:
		}
	}
}
