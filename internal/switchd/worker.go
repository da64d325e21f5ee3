package switchd

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

const (
	// nap bounds a sleep; it is for the counters alone.
	nap = time.Second
	// countEvery is how often a busy worker makes its counters known.
	countEvery = 50 * time.Millisecond
)

// worker moves the bytes of its stripe of every job. But for add, remove, stop
// and counts, everything belongs to the goroutine that runs it.
type worker struct {
	poller  datagram.Poller
	start   time.Time
	now     innetwork.Time
	stripes []*stripe
	links   []*link // by tag of the poller
	spare   []int   // tags
	plain   *datagram.Batch
	sealed  *datagram.Batch // made when the first job with a secret comes
	retryAt innetwork.Time  // when to try congested links again; 0: there are none

	retired  tally // of stripes that are gone
	moved    tally // the counts that the worker itself makes, not the stages
	countAt  innetwork.Time
	counted  atomic.Pointer[tally]
	mu       sync.Mutex
	requests []request
	stopped  bool        // of mu: nobody takes requests any more
	news     atomic.Bool // there are requests
	stopping atomic.Bool
}

// request is what another goroutine wants of a worker.
type request struct {
	add, remove *stripe
	done        chan struct{} // closed when it is removed
}

func newWorker(n session.Network) (*worker, error) {
	p, err := n.Poller()
	if err != nil {
		return nil, err
	}
	w := &worker{poller: p, start: time.Now()}
	w.counted.Store(&tally{})
	if w.plain, err = newBatch(wire.SlotSize); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return w, nil
}

// largest is the most bytes of elements that a datagram can carry: an IPv4 packet less its headers.
const largest = 1<<16 - 1 - 28 - wire.SlotSize

func newBatch(head int) (*datagram.Batch, error) {
	return datagram.NewBatch(head, largest-(head-wire.SlotSize))
}

// add hands a stripe to the worker.
func (w *worker) add(s *stripe) { w.post(request{add: s}) }

// remove takes a stripe from the worker, which has closed the stripe's links when remove returns.
func (w *worker) remove(s *stripe) {
	done := make(chan struct{})
	w.post(request{remove: s, done: done})
	<-done
}

func (w *worker) post(r request) {
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		if r.done != nil {
			close(r.done)
		}
		return
	}
	w.requests = append(w.requests, r)
	w.mu.Unlock()
	w.news.Store(true)
	w.poller.Wake()
}

// stop ends the worker, also while it has stripes.
func (w *worker) stop() {
	w.stopping.Store(true)
	w.poller.Wake()
}

// run is the worker's goroutine.
func (w *worker) run() {
	for !w.stopping.Load() {
		w.now = time.Since(w.start)
		if w.news.Load() {
			w.take()
		}
		w.mark(w.poller.Ready())
		w.retry()
		busy := false
		for _, s := range w.stripes {
			busy = w.serve(s) || busy
		}
		if !busy || w.now >= w.countAt {
			w.count()
		}
		if !busy {
			w.mark(w.poller.Wait(w.pause()))
		}
	}
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.take()
	_ = w.plain.Close() // the process goes on without it in any case
	if w.sealed != nil {
		_ = w.sealed.Close()
	}
	_ = w.poller.Close()
}

// take does what other goroutines asked for.
func (w *worker) take() {
	w.news.Store(false)
	w.mu.Lock()
	requests := w.requests
	w.requests = nil
	w.mu.Unlock()
	for _, r := range requests {
		if r.add != nil {
			w.adopt(r.add)
			continue
		}
		if i := slices.Index(w.stripes, r.remove); i >= 0 {
			w.stripes = slices.Delete(w.stripes, i, i+1)
			w.retire(r.remove)
		}
		close(r.done)
	}
}

func (w *worker) adopt(s *stripe) {
	s.worker = w
	w.stripes = append(w.stripes, s)
	for l := range s.all() {
		if err := w.watch(l); err != nil {
			go s.job.end(&session.Error{Text: err.Error()})
		}
	}
}

func (w *worker) watch(l *link) (err error) {
	l.batch = w.plain
	if l.seals.Out != nil {
		if w.sealed == nil {
			if w.sealed, err = newBatch(wire.SlotSize + seal.Tags.Size()); err != nil {
				return err
			}
		}
		l.batch = w.sealed
	}
	if n := len(w.spare); n > 0 {
		l.tag, w.spare = w.spare[n-1], w.spare[:n-1]
		w.links[l.tag] = l
	} else {
		l.tag = len(w.links)
		w.links = append(w.links, l)
	}
	return w.poller.Watch(l.socket.FD(), l.tag, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLET)
}

// retire lets go of a stripe's links. Closing takes a socket off the poller.
func (w *worker) retire(s *stripe) {
	w.retired.Add(s.node.Stats())
	for l := range s.all() {
		_ = l.socket.Close() // nothing to be done
		if l.batch != nil {
			w.links[l.tag] = nil
			w.spare = append(w.spare, l.tag)
		}
	}
}

// mark notes which sockets there is something to do for.
func (w *worker) mark(ready []unix.EpollEvent) {
	for i := range ready {
		l := w.links[ready[i].Fd]
		if l == nil {
			continue // removed after the kernel had noted the event
		}
		const failed = unix.EPOLLERR | unix.EPOLLHUP // the next call says which, and clears it
		l.readable = l.readable || ready[i].Events&(unix.EPOLLIN|failed) != 0
		if l.room == datagram.Full && ready[i].Events&(unix.EPOLLOUT|failed) != 0 {
			l.room = datagram.Free
		}
	}
}

// congest has retry look at congested links after a pause, which does not begin anew with each of them.
func (w *worker) congest() {
	if w.retryAt == 0 {
		w.retryAt = w.now + datagram.Pause
	}
}

// retry opens congested links when it is time: no event does.
func (w *worker) retry() {
	if w.retryAt == 0 || w.now < w.retryAt {
		return
	}
	w.retryAt = 0
	for _, l := range w.links {
		if l != nil && l.room == datagram.Congested {
			l.room = datagram.Free
		}
	}
}

// pause returns how long the worker may sleep.
func (w *worker) pause() time.Duration {
	d := nap
	if w.retryAt != 0 {
		d = min(d, w.retryAt-w.now)
	}
	for _, s := range w.stripes {
		if at, ok := s.node.Deadline(); ok && !s.failed {
			d = min(d, at-w.now)
		}
	}
	return max(d, 0)
}

// forget drops what was to be sent when a stripe failed.
func (w *worker) forget() {
	w.plain.Forget()
	if w.sealed != nil {
		w.sealed.Forget()
	}
}

// count makes the counters known to other goroutines.
func (w *worker) count() {
	t := w.retired
	t.add(&w.moved)
	for _, s := range w.stripes {
		t.Add(s.node.Stats())
		t.SlotsInUse += uint64(s.node.InUse())
	}
	if t != *w.counted.Load() {
		news := t
		w.counted.Store(&news)
	}
	w.countAt = w.now + countEvery
}
