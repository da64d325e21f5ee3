// Package overlap lets kinds of operations be in flight together, and beside the caller's compute,
// so that none waits behind another. Allgather and Reduce-Scatter are such kinds: the two load
// opposite directions of a link (Khalilov et al., SC24, Insight 2). It is for libraries that move
// bytes without a thread of their own; programs that want collectives use pkg/collnet.
//
//   - A Lane drives one Worker, which has queues and sockets of its own, by the goroutine that waits
//     for an operation or else by an agent. Lanes share nothing.
//   - A Meter tells how long operations of each Class were in flight, and how long both were.
//   - A Watch books what one operation waits for, an Account says it, a Ledger sums Accounts.
//
// The words are in docs/reference/glossary.md.
package overlap

import (
	"sync"
	"time"

	"go.uber.org/atomic"
)

// Worker is what a lane drives. All methods but Wake are called by one
// goroutine at a time.
type Worker interface {
	// Work does what can be done without waiting and reports whether that was anything.
	Work() bool
	// Sleep waits until there may be something to do. It may return early.
	Sleep(most time.Duration)
	// Wake ends a Sleep, the one under way or the next.
	Wake()
	// InFlight returns how many operations are not done. Any goroutine may call it.
	InFlight() int
}

// Rester is a Worker that can be left alone while nothing is in flight: a program may have a hundred
// lanes, most of them idle, and a Sleep holds a thread. The goroutine that drives calls both methods.
type Rester interface {
	Worker
	// Rest reports whether nothing has to be done before awake is called, which will be, once or more
	// often, when there may be, and when an operation is handed to the worker. awake does not block.
	// If Rest reports false, Sleep is how to wait.
	Rest(awake func()) bool
	// Rouse ends the rest that Rest began, also if Rest returned false. awake may be called once more.
	Rouse()
}

// Lane gives one goroutine at a time the right to drive a worker. Who waits
// for an operation drives it itself: that saves the hand-over to another
// thread, which costs more than a small operation. While nobody waits, the
// lane's agent drives, so that operations progress beside the caller's compute.
// While nothing is in flight either, nobody has the right: a Rester calls the
// agent when there is something to do.
type Lane struct {
	worker   Worker
	rester   Rester        // the worker, or nil
	awake    func()        // for Rest
	token    chan struct{} // holds one element while nobody drives
	callers  atomic.Int32  // goroutines in Drive
	left     atomic.Int64  // when the last of them left, as time.Since(start)
	helped   atomic.Int64  // when somebody last called Help, likewise
	asleep   atomic.Bool   // the agent may be in worker.Sleep
	resting  atomic.Bool   // the agent pauses for longer than minPause
	parked   atomic.Bool   // ... until it is notified
	wanted   atomic.Bool   // somebody leaves operations in flight to the agent
	armed    bool          // the worker rests; guarded by the token
	notified chan struct{} // ends that rest
	start    time.Time
	closed   chan struct{}
	ended    sync.WaitGroup
	once     sync.Once
}

// idleGrace is how long the agent leaves an idle lane alone after a caller has
// driven it: a program in a loop of blocking calls is served by its own thread.
const idleGrace = time.Millisecond

// minPause is how often a resting agent looks whether somebody relies on it: an
// operation is in flight and nobody waits. While a caller waits for long, the
// agent looks less and less often, down to every maxPause: on a machine where ranks
// outnumber cores, its looking would cost the compute of others.
const (
	minPause = 200 * time.Microsecond
	maxPause = 50 * time.Millisecond
)

// maxSleep is the longest single Sleep, so that nothing depends on a lost wake-up.
const maxSleep = 100 * time.Millisecond

// NewLane starts the agent of a worker.
func NewLane(w Worker) *Lane {
	l := &Lane{
		worker: w, token: make(chan struct{}, 1), notified: make(chan struct{}, 1), start: time.Now(),
		closed: make(chan struct{}),
	}
	l.rester, _ = w.(Rester)
	l.awake = l.notify
	l.token <- struct{}{}
	l.left.Store(-int64(idleGrace))
	l.helped.Store(-int64(idleGrace))
	l.ended.Add(1)
	go l.agent()
	return l
}

// Drive drives the worker, or waits while another caller does, until done is closed, or quit (nil:
// never) is, or the deadline (zero: none) has passed. It reports whether done was closed. Call Nudge
// after closing quit, so that Drive notices at once.
func (l *Lane) Drive(done, quit <-chan struct{}, deadline time.Time) bool {
	if isClosed(done) {
		return true
	}
	l.callers.Inc()
	defer l.leave()
	if l.asleep.Load() || l.callers.Load() > 1 {
		// The agent lets go when it sees a caller; a caller that drives takes
		// up what this one has posted.
		l.worker.Wake()
	}
	var timeout <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-done:
		return true
	case <-quit:
		return isClosed(done)
	case <-timeout:
		return isClosed(done)
	case <-l.closed:
		return await(done, quit, timeout)
	case <-l.token:
	}
	l.endRest()
	l.callerDrives(done, quit, deadline)
	l.token <- struct{}{}
	if isClosed(l.closed) {
		return await(done, quit, timeout)
	}
	return isClosed(done)
}

// Help drives the worker a little, unless somebody does already. It is for callers that
// ask again and again whether an operation is done, and have nothing else to do: the agent
// then leaves the lane, and the core, to them.
func (l *Lane) Help() {
	l.helped.Store(int64(time.Since(l.start)))
	if l.asleep.Load() {
		l.worker.Wake()
	}
	select {
	case <-l.token:
	default:
		return
	}
	l.endRest()
	defer l.giveBack()
	for range rounds {
		if !l.worker.Work() {
			return
		}
	}
}

// giveBack ends the stay of one who drove and does not wait for anything: the agent looks after what
// comes.
func (l *Lane) giveBack() {
	l.token <- struct{}{}
	if l.parked.Load() {
		l.unparkAgent()
	}
}

// rounds bounds the stay of a helper, which may have other lanes to look after.
const rounds = 4

// polled reports whether somebody helps.
func (l *Lane) polled() bool {
	return time.Since(l.start)-time.Duration(l.helped.Load()) < idleGrace
}

func (l *Lane) callerDrives(done, quit <-chan struct{}, deadline time.Time) {
	for round := 1; !isClosed(done) && !isClosed(quit) && !isClosed(l.closed); round++ {
		if l.worker.Work() {
			if round%16 == 0 && !deadline.IsZero() && time.Now().After(deadline) {
				return
			}
			continue
		}
		most := maxSleep
		if !deadline.IsZero() {
			if most = min(most, time.Until(deadline)); most <= 0 {
				return
			}
		}
		if !isClosed(done) {
			l.worker.Sleep(most)
		}
	}
}

// await waits for an operation that a closing lane is about to end.
func await(done, quit <-chan struct{}, timeout <-chan time.Time) bool {
	select {
	case <-done:
		return true
	case <-quit:
		return isClosed(done)
	case <-timeout:
		return isClosed(done)
	}
}

// leave ends a caller's stay; the agent drives operations that are still in flight, and later ones.
func (l *Lane) leave() {
	l.left.Store(int64(time.Since(l.start)))
	if l.callers.Dec() == 0 && (l.worker.InFlight() > 0 || l.parked.Load()) {
		l.unparkAgent()
	}
}

// unparkAgent has an agent that rests for long look again soon.
func (l *Lane) unparkAgent() {
	if l.resting.Load() {
		l.wanted.Store(true)
		l.notify()
	}
}

// notify ends a rest of the agent.
func (l *Lane) notify() {
	select {
	case l.notified <- struct{}{}:
	default:
	}
}

// Posted says that an operation was handed to the worker by somebody who does
// not wait for it yet. If the lane was idle it is begun here and now; then
// the goroutine that drives, or the agent, takes it up.
func (l *Lane) Posted() {
	if l.worker.InFlight() == 1 {
		select {
		case <-l.token:
			l.endRest()
			l.worker.Work()
			l.giveBack()
			if l.worker.InFlight() == 0 {
				return
			}
		default:
		}
	}
	l.Nudge()
}

// Nudge says that an operation which had to wait for something outside the
// lane can go on. It does not block.
func (l *Lane) Nudge() {
	if l.asleep.Load() || l.callers.Load() > 0 {
		l.worker.Wake()
	}
	l.unparkAgent()
}

// agent drives the worker while no caller does.
func (l *Lane) agent() {
	defer l.ended.Done()
	timer := time.NewTimer(minPause)
	defer timer.Stop()
	for {
		pause := l.firstPause()
		l.resting.Store(pause > minPause)
		for !l.agentsTurn() {
			timer.Reset(pause)
			select {
			case <-timer.C:
				if pause = min(2*pause, maxPause); l.polled() {
					pause = idleGrace // who asks stops without a word
				}
			case <-l.notified:
				pause = minPause // the caller that posted may be about to wait: look again soon
			case <-l.closed:
				return
			}
			l.resting.Store(pause > minPause)
		}
		l.resting.Store(false)
		select {
		case <-l.token:
		case <-l.closed:
			return
		}
		l.endRest()
		l.agentDrives()
		l.token <- struct{}{}
		if !l.waitParked(timer) {
			return
		}
	}
}

// firstPause is for how long the agent leaves the lane to a caller at first. Who has just left without
// anything in flight may come again.
func (l *Lane) firstPause() time.Duration {
	if l.callers.Load() == 0 && l.worker.InFlight() == 0 {
		return idleGrace
	}
	return minPause
}

func (l *Lane) agentsTurn() bool {
	if l.callers.Load() > 0 || l.polled() {
		return false
	}
	return l.worker.InFlight() > 0 || time.Since(l.start)-time.Duration(l.left.Load()) >= idleGrace
}

// agentDrives drives until somebody else does, the worker rests, or the lane is closed.
func (l *Lane) agentDrives() {
	for busy := false; l.callers.Load() == 0 && !l.polled() && !isClosed(l.closed); {
		if l.worker.Work() {
			busy = true
			continue
		}
		most := maxSleep
		if l.rester != nil && l.worker.InFlight() == 0 {
			if busy {
				most = idleGrace // what follows comes soon, or the worker rests
			} else if l.park() {
				return
			}
		}
		busy = false
		// A caller that comes now sees asleep and wakes us, or we see it.
		l.asleep.Store(true)
		if l.callers.Load() == 0 && !l.polled() && !isClosed(l.closed) {
			l.worker.Sleep(most)
		}
		l.asleep.Store(false)
	}
}

// park has the worker rest and reports whether it does. Who comes from then on sees that the agent is
// parked and notifies it, or the agent sees who has come.
func (l *Lane) park() bool {
	if l.rester == nil {
		return false
	}
	l.wanted.Store(false)
	l.parked.Store(true)
	l.resting.Store(true)
	l.armed = true
	if l.rester.Rest(l.awake) && l.worker.InFlight() == 0 && l.callers.Load() == 0 {
		return true
	}
	l.endRest()
	l.unpark()
	return false
}

func (l *Lane) unpark() {
	l.resting.Store(false)
	l.parked.Store(false)
}

// endRest ends the worker's rest, for the goroutine that drives.
func (l *Lane) endRest() {
	if l.armed {
		l.armed = false
		l.rester.Rouse()
	}
}

// waitParked waits, if the agent is parked, until it is needed, and reports false when the lane is closed.
// Who has handed an operation to the worker and said no more may be about to drive it.
func (l *Lane) waitParked(timer *time.Timer) bool {
	if l.parked.Load() {
		select {
		case <-l.notified:
		case <-l.closed:
		}
		if l.worker.InFlight() > 0 && !l.wanted.Load() {
			timer.Reset(minPause)
			select {
			case <-timer.C:
			case <-l.notified:
			case <-l.closed:
			}
		}
		l.wanted.Store(false)
		l.unpark()
	}
	return !isClosed(l.closed)
}

// Close ends the agent and every Drive, and returns when nobody drives any more.
func (l *Lane) Close() {
	l.once.Do(func() {
		close(l.closed)
		l.worker.Wake()
		l.ended.Wait()
		<-l.token // not given back: nobody drives again
		l.endRest()
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
