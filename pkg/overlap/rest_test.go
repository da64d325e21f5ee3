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

// restful is a worker that rests, unless it is restless.
type restful struct {
	*worker
	restless atomic.Bool
	slept    atomic.Int32
	mu       sync.Mutex
	awake    func()
}

func newRestful() *restful { return &restful{worker: newWorker()} }

func (w *restful) Rest(awake func()) bool {
	defer w.enter()()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awake = awake
	return !w.restless.Load()
}

func (w *restful) Rouse() {
	defer w.enter()()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awake = nil
}

func (w *restful) Sleep(most time.Duration) {
	w.slept.Add(1)
	w.worker.Sleep(most)
}

// arrives has something come from outside that only the worker notices.
func (w *restful) arrives() (done chan struct{}) {
	done = w.post()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.awake != nil {
		w.awake()
	}
	return done
}

// awaitParked waits until the agent has nothing to do.
func awaitParked(t *testing.T, l *Lane) {
	t.Helper()
	systest.Eventually(t, l.parked.Load)
}

func served(t *testing.T, done <-chan struct{}) {
	t.Helper()
	systest.Receive(t, done, "nobody served the lane")
}

// TestIdleLaneSleepsNowhere: the agent of a worker that rests is called by the worker, by who posts,
// and by who drove, and sleeps for what may follow alone.
func TestIdleLaneSleepsNowhere(t *testing.T) {
	w := newRestful()
	l := NewLane(w)
	defer l.Close()
	awaitParked(t, l)
	require.Zero(t, w.slept.Load())
	for range 20 {
		awaitParked(t, l)
		served(t, w.arrives())
		awaitParked(t, l)
		done := w.post()
		l.Posted()
		served(t, done)
		awaitParked(t, l)
		require.True(t, l.Drive(w.post(), nil, time.Time{}))
		awaitParked(t, l)
		for done := w.post(); !isClosed(done); {
			l.Help()
		}
	}
	require.False(t, w.clash.Load())
}

// TestRestlessWorkerIsSleptOn: until it rests.
func TestRestlessWorkerIsSleptOn(t *testing.T) {
	w := newRestful()
	w.restless.Store(true)
	l := NewLane(w)
	defer l.Close()
	systest.Eventually(t, func() bool { return w.slept.Load() > 0 })
	require.False(t, l.parked.Load() && w.slept.Load() == 0)
	w.restless.Store(false)
	w.Wake()
	awaitParked(t, l)
}

// TestNothingIsMissedAroundARest posts in all ways while the agent goes to rest and is called.
func TestNothingIsMissedAroundARest(t *testing.T) {
	w := newRestful()
	l := NewLane(w)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for n := range 300 {
				if n%5 == 0 {
					systest.Pause(time.Duration(n%4) * idleGrace / 2) // about as long as the agent leaves an idle lane alone
				}
				done := w.post()
				switch i % 3 {
				case 0:
					l.Posted()
					systest.Receive(t, done, "the agent did not take an operation up")
				case 1:
					assert.True(t, l.Drive(done, nil, time.Time{}))
				case 2:
					for !isClosed(done) {
						l.Help()
					}
				}
			}
		})
	}
	all.Wait()
	assert.False(t, w.clash.Load(), "two goroutines drove the worker at once")
	l.Close()
	assert.Nil(t, w.awake, "a closed lane is called by nobody")
}
