package engine

import (
	"time"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/direct"
	"github.com/torch-mcast/torch-mcast/internal/fabric"
)

// ReduceConfig says how a Reduce engine is set up.
type ReduceConfig struct {
	Rank, Size int
	// Open connects the streams. It is called once, on a goroutine of its
	// own, when the first operation is submitted: a communicator that never
	// reduces needs no P-1 connections.
	Open func() (fabric.Streams, error)
	// Broken is called once, when the lane cannot go on; it brings about a call of Fail.
	Broken func(err error)
}

// Reduce drives the Reduce-Scatter of one rank. It implements overlap.Worker.
type Reduce struct {
	cfg      ReduceConfig
	comm     *direct.Comm
	works    [slots]*Work
	posted   uint32
	queue    inbox[reduceOp]
	flying   atomic.Int64
	opening  atomic.Bool
	opened   chan struct{}
	streams  atomic.Pointer[streamsBox]
	fault    atomic.Error
	failed   bool
	reported bool          // Broken was called
	wake     chan struct{} // ends a Sleep before the streams are open
	done     atomic.Uint64
}

type streamsBox struct{ fabric.Streams }

type reduceOp struct {
	direct.Op
	work *Work
}

// NewReduce returns an engine whose streams are opened when needed.
func NewReduce(cfg ReduceConfig) *Reduce {
	return &Reduce{cfg: cfg, opened: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Submit queues an operation whose arguments are checked. after, if not nil,
// is called when it is done. The caller tells the lane, or drives it.
func (r *Reduce) Submit(o direct.Op, after func()) (*Work, error) {
	w := newWork(after)
	r.flying.Inc()
	if err := r.queue.put(reduceOp{o, w}); err != nil {
		r.flying.Dec()
		return nil, err
	}
	if r.opening.CompareAndSwap(false, true) {
		go r.open()
	}
	return w, nil
}

func (r *Reduce) open() {
	defer close(r.opened)
	s, err := r.cfg.Open()
	if err != nil {
		r.cfg.Broken(err)
		return
	}
	r.streams.Store(&streamsBox{s})
	r.Wake()
}

// Fail ends all operations, now and later, with err. Any goroutine may call it.
func (r *Reduce) Fail(err error) {
	if r.fault.CompareAndSwap(nil, err) {
		r.Wake()
	}
}

// InFlight returns how many operations are not done.
func (r *Reduce) InFlight() int { return int(r.flying.Load()) }

// Wake ends a Sleep.
func (r *Reduce) Wake() {
	if s := r.streams.Load(); s != nil {
		s.Wake()
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Sleep waits for the streams.
func (r *Reduce) Sleep(most time.Duration) {
	if r.comm == nil || r.comm.Err() != nil || r.failed {
		select {
		case <-r.wake:
		case <-time.After(most):
		}
		return
	}
	if r.comm.Check(); r.comm.Err() == nil && r.queue.count.Load() == 0 {
		r.streams.Load().Sleep(most)
	}
}

// Work does one round: operations in, bytes out, bytes in and summed.
func (r *Reduce) Work() bool {
	if r.checkFault() || !r.ready() {
		return false
	}
	items := r.queue.take(r.comm.Room())
	for i := range items {
		r.comm.Post(items[i].Op, r.posted, nil)
		r.works[r.posted%slots] = items[i].work
		r.posted++
	}
	busy := r.comm.Work() || len(items) > 0
	for {
		seq, ok := r.comm.NextDone()
		if !ok {
			return busy
		}
		w := r.works[seq%slots]
		r.works[seq%slots] = nil
		r.flying.Dec()
		r.done.Inc()
		w.finish(nil)
		busy = true
	}
}

func (r *Reduce) ready() bool {
	if r.comm != nil {
		return true
	}
	if s := r.streams.Load(); s != nil {
		r.comm = direct.New(r.cfg.Rank, r.cfg.Size, s)
	}
	return r.comm != nil
}

// checkFault ends everything once Fail was called, or the lane failed, and
// reports whether it has.
func (r *Reduce) checkFault() bool {
	if r.failed {
		return true
	}
	err := r.fault.Load()
	if err == nil {
		if r.comm == nil || r.comm.Err() == nil {
			return false
		}
		if !r.reported {
			r.reported = true
			r.cfg.Broken(r.comm.Err())
		}
		// Fail brings the error that all ranks are told.
		return true
	}
	r.failed = true
	for _, o := range r.queue.shut(err) {
		r.flying.Dec()
		o.work.finish(err)
	}
	for i, w := range r.works {
		if w != nil {
			r.works[i] = nil
			r.flying.Dec()
			w.finish(err)
		}
	}
	return true
}

// Stats returns the number of operations done and the streams' counters. Any
// goroutine may call it.
func (r *Reduce) Stats() (done uint64, s fabric.Stats) {
	if b := r.streams.Load(); b != nil {
		s = b.Stats()
	}
	return r.done.Load(), s
}

// Close closes the streams. Nobody may drive the engine any more.
func (r *Reduce) Close() error {
	if r.opening.CompareAndSwap(false, true) {
		return nil // never needed, and from now on nobody opens them
	}
	<-r.opened
	if b := r.streams.Load(); b != nil {
		return b.Close()
	}
	return nil
}
