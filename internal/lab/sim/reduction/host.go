package reduction

import (
	"fmt"
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Host is a rank, run by an engine, which ships. It implements network.Node.
type Host struct {
	job    *Job
	rank   int
	engine *engine.Reduce
	conn   *reducescatter.SwitchConn
	path   *path
	recv   []byte
	posted int // windows
	rng    *rand.Rand
	paused bool     // before the next window
	open   int      // operations in flight
	came   [][]bool // by stripe and slot: a result that was taken
	timer  Time     // the earliest wake-up asked for, 0: none
	finish Time     // when the operation was done here
	done   bool
}

// Wake-ups of a host.
const (
	wakeTimer = iota
	wakePost
	wakeLane // and up by one a lane
)

func newHost(j *Job, rank int) *Host {
	h := &Host{
		job: j, rank: rank, rng: rand.New(rand.NewPCG(j.cfg.Seed, uint64(4+rank))), came: make([][]bool, j.terms.Stripes),
	}
	h.path = newPath(h)
	var link fabric.Link
	if j.cfg.Link != nil {
		link = j.cfg.Link(rank)
	}
	h.conn = reducescatter.NewSwitchConn(reducescatter.SwitchConnConfig{
		Link: link,
		// the job sees it first
		Epoch: 1, Terms: j.terms, Rank: rank, Number: j.plans[0].Number[rank], Switch: h.path, Timeout: 2 * patience,
		Lost: func(err error) { j.fail(fmt.Errorf("reduction: rank %d: %w", rank, err)) },
	})
	h.engine = engine.NewReduce(engine.ReduceConfig{
		Rank: rank, Size: j.terms.Ranks, Clock: j.net.Now, Link: link,
		Broken: func(err error) { j.fail(fmt.Errorf("reduction: rank %d: %w", rank, err)) },
	})
	h.engine.Begin(1, h.conn, nil)
	return h
}

// start posts the operation, or the first windows.
func (h *Host) start() {
	c := &h.job.cfg
	h.recv = make([]byte, c.Bytes)
	if c.Windows == 0 {
		h.post(direct.Op{
			Op:     collective.Op{Count: c.Bytes / c.typ().Size(), Type: c.typ(), Reduction: reduce.Sum},
			Shards: func(owner int) []byte { return h.job.inputs.of(h.rank, owner) },
			Recv:   h.recv,
		})
	} else {
		h.postWindows()
	}
	h.drive()
}

// postWindows keeps as many windows in flight as NCCL does, and pauses before each if there is skew.
func (h *Host) postWindows() {
	c := &h.job.cfg
	for h.posted < c.Windows*c.Ranks && h.open < c.InFlight && !h.paused {
		if c.Skew > 0 {
			h.paused = true
			h.job.net.At(h.job.net.Now()+1+Time(h.rng.Int64N(int64(c.Skew))), h.rank, wakePost)
			return
		}
		h.postWindow()
	}
}

func (h *Host) postWindow() {
	c := &h.job.cfg
	owner, size := h.posted/c.Windows, c.Bytes/c.Windows
	from := h.posted % c.Windows * size
	o := direct.Op{
		Op:   collective.Op{To: wire.ToRank(owner), Count: size / c.typ().Size(), Type: c.typ(), Reduction: reduce.Sum},
		Send: h.job.inputs.of(h.rank, owner)[from : from+size],
	}
	if owner == h.rank {
		o.Recv = h.recv[from : from+size]
	}
	h.posted++
	h.post(o)
}

func (h *Host) post(o direct.Op) {
	w, err := h.engine.Submit(engine.ReduceOp{Op: o}, nil)
	if err != nil {
		h.job.fail(err)
		return
	}
	h.open++
	w.OnDone(h.complete)
}

// Receive takes what a leaf has sent.
func (h *Host) Receive(p *network.Packet) {
	b := p.Body.(*Packet)
	h.path.arrived, h.path.result = b, false // of a stripe that nothing is owed in, it is not read
	dropped := h.conn.Stats().Dropped
	h.drive()
	if h.path.result && h.conn.Stats().Dropped == dropped {
		h.note(b)
	}
}

// note remembers that the engine has taken a result, which it must do once.
func (h *Host) note(b *Packet) {
	h.job.progress = h.job.net.Now()
	stripe := &h.came[b.head.Stripe]
	slot := int(b.head.Slot)
	*stripe = append(*stripe, make([]bool, max(0, slot+1-len(*stripe)))...)
	if (*stripe)[slot] {
		h.job.fail(fmt.Errorf("reduction: rank %d took slot %d of stripe %d twice", h.rank, slot, b.head.Stripe))
	}
	(*stripe)[slot] = true
	h.job.result.Checked += uint64(len(b.payload))
}

// Wake handles a timer, or a NIC that has nearly sent all that it was given.
func (h *Host) Wake(tag uint64) {
	switch {
	case tag == wakePost:
		h.paused = false
		h.postWindow()
		h.postWindows()
		h.drive()
		return
	case tag != wakeTimer:
		h.path.lanes[tag-wakeLane].wake()
		h.drive()
		return
	}
	now := h.job.net.Now()
	if h.timer == 0 || now < h.timer {
		return // an earlier one was asked for since, and another is to come
	}
	h.timer = 0
	if until := h.job.net.Busy(h.rank); until > now { // what waits in its queue is no silence
		h.wake(until)
		return
	}
	h.drive()
}

// drive lets the engine do what there is to do as long as NICs take more, and asks for a wake-up at
// its deadline, unless an earlier one will see to it.
func (h *Host) drive() {
	for more := true; more; {
		h.engine.Work()
		more = false
		for _, l := range h.path.lanes {
			more = l.pump() || more
		}
	}
	if at, ok := h.engine.Deadline(); ok && !h.done && (h.timer == 0 || at < h.timer) {
		h.wake(max(at, h.job.net.Now()))
	}
}

func (h *Host) wake(at Time) {
	h.timer = at
	h.job.net.At(at, h.rank, wakeTimer)
}

// complete posts more windows, or checks the result of all.
func (h *Host) complete(err error) {
	h.open--
	if err == nil {
		h.job.progress = h.job.net.Now()
		if h.postWindows(); h.open > 0 || h.paused {
			return
		}
		err = h.job.inputs.check(h.rank, h.recv)
	}
	if err != nil {
		h.job.fail(err)
		return
	}
	h.recv = nil
	h.done, h.finish = true, h.job.net.Now()
	h.job.running--
}
