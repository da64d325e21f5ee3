package overlap

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// worker finishes one operation a Work and notices two drivers at once.
type worker struct {
	mu      sync.Mutex
	ops     []chan struct{}
	drivers atomic.Int32
	clash   atomic.Bool
	wake    chan struct{}
	hold    atomic.Bool // do nothing
}

func newWorker() *worker { return &worker{wake: make(chan struct{}, 1)} }

func (w *worker) post() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := make(chan struct{})
	w.ops = append(w.ops, done)
	return done
}

func (w *worker) enter() func() {
	if w.drivers.Add(1) != 1 {
		w.clash.Store(true)
	}
	return func() { w.drivers.Add(-1) }
}

func (w *worker) Work() bool {
	defer w.enter()()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ops) == 0 || w.hold.Load() {
		return false
	}
	close(w.ops[0])
	w.ops = w.ops[1:]
	return true
}

func (w *worker) Sleep(most time.Duration) {
	defer w.enter()()
	select {
	case <-w.wake:
	case <-time.After(most): //nolint:forbidigo // a worker's Sleep ends by itself
	}
}

func (w *worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) InFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ops)
}

func TestAgentServesWhatNobodyWaitsFor(t *testing.T) {
	w := newWorker()
	l := NewLane(w)
	defer l.Close()
	for range 100 {
		done := w.post()
		l.Posted()
		systest.Receive(t, done, "the agent did not take an operation up")
	}
	assert.False(t, w.clash.Load())
}

func TestCallersDriveOneAtATime(t *testing.T) {
	w := newWorker()
	l := NewLane(w)
	defer l.Close()
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 200 {
				assert.True(t, l.Drive(w.post(), nil, time.Time{}))
			}
		}()
	}
	wg.Wait()
	assert.False(t, w.clash.Load(), "two goroutines drove the worker at once")
	assert.True(t, l.Drive(closedChan(), nil, time.Time{}))
}

// TestHelpersAndAgentTakeTurns: one who asks again and again serves the lane, and the agent does
// when nobody asks any more; never both at once.
func TestHelpersAndAgentTakeTurns(t *testing.T) {
	w := newWorker()
	l := NewLane(w)
	defer l.Close()
	for range 200 {
		helped := w.post()
		for !isClosed(helped) {
			l.Help()
		}
	}
	var helpers sync.WaitGroup
	for range 4 {
		helpers.Add(1)
		go func() {
			defer helpers.Done()
			for range 200 {
				l.Help()
				w.post()
				l.Posted()
			}
		}()
	}
	helpers.Wait()
	last := w.post()
	l.Posted()
	systest.Receive(t, last, "nobody served the lane")
	require.False(t, w.clash.Load())
}

func closedChan() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestDriveHonoursItsDeadline(t *testing.T) {
	w := newWorker()
	w.hold.Store(true)
	l := NewLane(w)
	defer l.Close()
	done := w.post()
	assert.False(t, l.Drive(done, nil, time.Now().Add(20*time.Millisecond)))
	// A second caller, which cannot have the token, honours it too.
	first := make(chan bool)
	go func() { first <- l.Drive(done, nil, time.Time{}) }()
	assert.False(t, l.Drive(done, nil, time.Now().Add(20*time.Millisecond)))
	w.hold.Store(false)
	w.Wake()
	assert.True(t, <-first)
	assert.False(t, w.clash.Load())
}

func TestCloseEndsDrivers(t *testing.T) {
	w := newWorker()
	w.hold.Store(true)
	l := NewLane(w)
	done := w.post()
	result := make(chan bool)
	go func() { result <- l.Drive(done, nil, time.Time{}) }()
	systest.Eventually(t, func() bool { return l.callers.Load() > 0 })
	l.Close()
	l.Close()   // again is harmless
	close(done) // as a closing engine does for operations in flight
	require.True(t, <-result)
}

func TestMeter(t *testing.T) {
	m := new(Meter)
	m.Begin(Gather)
	systest.Pause(5 * time.Millisecond)
	m.Begin(Reduce)
	m.Begin(Reduce)
	systest.Pause(5 * time.Millisecond)
	m.End(Reduce)
	m.End(Gather)
	systest.Pause(5 * time.Millisecond)
	m.End(Reduce)
	g, r, both := m.Times()
	assert.GreaterOrEqual(t, g, 10*time.Millisecond)
	assert.GreaterOrEqual(t, r, 10*time.Millisecond)
	assert.GreaterOrEqual(t, both, 5*time.Millisecond)
	assert.LessOrEqual(t, both, min(g, r))
	again, _, _ := m.Times()
	assert.Equal(t, g, again, "nothing is in flight")
}

// TestAgentTakesOverFromACaller: when a caller that has waited for long leaves,
// the agent soon drives the operations that are still in flight.
func TestAgentTakesOverFromACaller(t *testing.T) {
	w := newWorker()
	w.hold.Store(true)
	l := NewLane(w)
	defer l.Close()
	w.post()
	rest := w.post()
	for !l.resting.Load() { // the caller has waited for so long that the agent seldom looks
		l.Drive(rest, nil, time.Now().Add(20*time.Millisecond))
	}
	w.hold.Store(false)
	systest.Receive(t, rest, "the agent did not take over")
}
