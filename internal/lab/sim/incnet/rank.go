package incnet

import (
	"bytes"
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
)

// rank runs the script by an engine, which ships, and does what a group does around it: it joins
// sessions, and leaves them when a node is lost.
type rank struct {
	s         *sim
	number    int
	reduce    *engine.Reduce
	path      *rankPath // in the present session; nil: it has left it, or not joined yet
	streams   *streams
	left      int // sessions that it has left
	crashed   bool
	told      bool // of another's crash
	posted    int
	completed int
	switched  uint64 // operations that the switch has done
	waiting   bool   // post is scheduled
	buffers   []*buffer
	timer     innetwork.Time // of the last wake-up asked for
}

// buffer is what an operation works on.
type buffer struct {
	send, recv []byte
	done       bool
}

func newRank(s *sim, number int) *rank {
	r := &rank{s: s, number: number}
	r.reduce = engine.NewReduce(engine.ReduceConfig{
		Rank: number, Size: s.Terms.Ranks, Clock: s.net.Now,
		Broken: func(err error) { s.fail("rank %d: %w", number, err) },
	})
	r.streams = newStreams(r)
	return r
}

// ended reports whether nothing is to be expected of the rank any more.
func (r *rank) ended() bool { return r.crashed || r.told }

// connect makes the rank a member in a session.
func (r *rank) connect(session int, t innetwork.Terms) *reducescatter.SwitchConn {
	r.path = &rankPath{rank: r}
	leaf, number := t.Ranks+r.s.At[r.number], r.s.plan.Number[r.number]
	for i := range t.Stripes {
		r.path.up = append(r.path.up, &pipe{s: r.s, from: r.number, to: leaf, number: number, stripe: i})
	}
	return reducescatter.NewSwitchConn(reducescatter.SwitchConnConfig{
		Epoch: uint32(session), Terms: t, Rank: r.number, Number: number, Switch: r.path, Timeout: patience,
		Lost: func(err error) { r.s.fail("rank %d: %w", r.number, err) },
	})
}

// post posts operations up to the depth.
func (r *rank) post() {
	r.waiting = false
	if r.ended() || r.posted == len(r.s.Ops) || r.posted-r.completed >= r.s.Depth {
		return
	}
	i, o := r.posted, &r.s.Ops[r.posted]
	b := r.s.newBuffer(i, r.number)
	r.buffers = append(r.buffers, b)
	r.posted++
	w, err := r.reduce.Submit(engine.ReduceOp{Op: direct.Op{Op: o.Op, Send: b.send, Recv: b.recv}}, nil)
	if err != nil {
		r.s.fail("rank %d: operation %d: %w", r.number, i, err)
		return
	}
	w.OnDone(func(err error) {
		if !errors.Is(err, errTold) {
			r.complete(i, err)
		}
	})
	r.round()
	r.again()
}

// again schedules the next post.
func (r *rank) again() {
	if !r.waiting && r.posted < len(r.s.Ops) && r.posted-r.completed < r.s.Depth {
		r.waiting = true
		r.s.after(upTo(r.s.rng, r.s.Skew), r.post)
	}
}

// receive takes what the node has sent.
func (r *rank) receive(d *datagram) {
	if r.path == nil || r.ended() {
		return
	}
	p := r.path
	p.arrived = d
	r.round()
	p.arrived = nil // of no stripe, it is not read
}

// round drives the engine until there is nothing to do, and has it woken when there is.
func (r *rank) round() {
	for !r.crashed && r.s.err == nil && r.reduce.Work() {
	}
	if at, ok := r.reduce.Deadline(); ok && !r.ended() {
		r.s.wake(&r.timer, at, r.round)
	}
}

// complete checks an operation that is done, and takes its buffers away.
func (r *rank) complete(o int, err error) {
	s, b := r.s, r.buffers[o]
	switched := r.reduce.Stats().Switched
	direct := switched == r.switched
	r.switched = switched
	switch {
	case err != nil:
		s.fail("rank %d: operation %d: %w", r.number, o, err)
	case b.done:
		s.fail("rank %d: operation %d is done twice", r.number, o)
	case !bytes.Equal(b.recv, s.expected[o][r.number]):
		s.fail("rank %d: operation %d (%v of %v) has a wrong result", r.number, o, s.Ops[o].Reduction, s.Ops[o].Type)
	}
	for _, p := range s.ranks { // what others still need of this rank they must not need
		if !direct && p != r && !p.crashed && !p.has(o) {
			s.fail("rank %d: operation %d is done, but rank %d lacks its result", r.number, o, p.number)
		}
	}
	s.result.Ops++
	s.result.Bytes += len(b.recv)
	if direct {
		s.result.Direct++
	}
	b.done = true
	for i := range b.send {
		b.send[i] = poison
	}
	r.completed++
	s.progress = s.net.Now()
	r.again()
}

// has reports whether a rank holds its whole result of an operation.
func (r *rank) has(o int) bool {
	if o >= r.posted {
		return r.s.Ops[o].Count == 0
	}
	return r.buffers[o].done || bytes.Equal(r.buffers[o].recv, r.s.expected[o][r.number])
}
