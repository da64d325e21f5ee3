package overlap_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// countdown is a worker that takes three steps for each operation.
type countdown struct {
	posted chan chan struct{}
	wake   chan struct{}
	flying atomic.Int64
	now    chan struct{} // the operation under way
	steps  int
}

func (c *countdown) Work() bool {
	if c.now == nil {
		select {
		case c.now = <-c.posted:
			c.steps = 3
		default:
			return false
		}
	}
	if c.steps--; c.steps == 0 {
		close(c.now)
		c.now = nil
		c.flying.Add(-1)
	}
	return true
}

func (c *countdown) Sleep(most time.Duration) {
	select {
	case <-c.wake:
	case <-time.After(most): //nolint:forbidigo // a worker's Sleep ends by itself
	}
}

func (c *countdown) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *countdown) InFlight() int { return int(c.flying.Load()) }

// The goroutine that waits moves the operation itself. Had nobody waited, the lane's agent would
// have.
func ExampleLane() {
	w := &countdown{posted: make(chan chan struct{}, 8), wake: make(chan struct{}, 1)}
	l := overlap.NewLane(w)
	defer l.Close()

	done := make(chan struct{})
	w.flying.Add(1)
	w.posted <- done
	l.Posted()
	fmt.Println(l.Drive(done, nil, time.Time{}))
	// Output: true
}

func ExampleMeter() {
	var m overlap.Meter
	m.Begin(overlap.Gather)
	m.Begin(overlap.Reduce)
	time.Sleep(time.Millisecond)
	m.End(overlap.Reduce)
	m.End(overlap.Gather)
	gather, reduce, both := m.Times()
	fmt.Println(gather >= both, reduce == both, both >= time.Millisecond)
	// Output: true true true
}

func ExampleWatch() {
	var w overlap.Watch
	w.Start(0)
	w.Enter(overlap.Peers, 2*time.Millisecond)
	w.Enter(overlap.Transfer, 5*time.Millisecond)
	a := w.Stop(15 * time.Millisecond)
	fmt.Println(a[overlap.Queued], a[overlap.Peers], a[overlap.Transfer], a.Total())
	// Output: 2ms 3ms 10ms 15ms
}
