package incnet

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// rank runs the script.
type rank struct {
	s         *sim
	rank      int
	member    *innetwork.Member
	links     []*link // at the node, by stripe
	session   int
	base      int // operation that is number 0 of the session
	stopped   bool
	crashed   bool
	told      bool // of another's crash
	posted    int
	completed int
	waiting   bool // post is scheduled
	buffers   []*buffer
	timer     innetwork.Time
}

// buffer is what an operation in flight works on.
type buffer struct {
	send, recv []byte
	held       []innetwork.Range // when its session ended
	done       bool
}

func newRank(s *sim, r int) *rank { return &rank{s: s, rank: r} }

// join makes the rank a member in a new session.
func (r *rank) join(t innetwork.Terms, number int) {
	r.member, r.session, r.stopped, r.base, r.timer = innetwork.NewMember(r.rank, number, t), r.s.session, false, r.s.restart, 0
	r.links = nil
	for i := range t.Stripes {
		r.links = append(r.links, &link{s: r.s, handle: func(p *packet) { r.s.nodes[r.s.At[r.rank]].stages[i].fromMember(number, p) }})
	}
}

// post posts operations up to the depth.
func (r *rank) post() {
	r.waiting = false
	if r.crashed || r.told {
		return
	}
	if r.posted < len(r.s.Ops) && r.posted-r.completed < r.s.Depth {
		o := &r.s.Ops[r.posted]
		r.buffers = append(r.buffers, r.s.newBuffer(r.posted, r.rank))
		r.posted++
		switch {
		case r.stopped: // it is finished directly: see reopen
		case r.posted <= r.s.restart:
			r.s.settle()
		default:
			r.member.Post(r.s.now, o.Op)
		}
		r.flush()
		r.again()
	}
}

// again schedules the next post.
func (r *rank) again() {
	if !r.waiting && r.posted < len(r.s.Ops) && r.posted-r.completed < r.s.Depth {
		r.waiting = true
		r.s.after(upTo(r.s.rng, r.s.Skew), r.post)
	}
}

// receive takes what the node has sent.
func (r *rank) receive(p *packet) {
	if r.crashed || r.told || r.stopped {
		return
	}
	now := r.s.now
	switch p.head.Kind {
	case wire.Result:
		payload := r.land(p)
		place, ok := r.member.Place(now, &p.head, len(payload))
		if !ok {
			break
		}
		if place.Bytes != len(payload) {
			r.s.fail("rank %d: place of %d bytes for %d", r.rank, place.Bytes, len(payload))
			return
		}
		r.take(&place, payload)
		r.member.Received(now, &p.head)
		r.s.progress = now
	case wire.Allowance:
		r.member.Credit(now, &p.head, &p.credit)
	}
	r.flush()
}

// take puts a result in its place, completed by what this rank has kept.
func (r *rank) take(place *innetwork.Place, payload []byte) {
	o := r.base + int(place.Seq)
	op, b := &r.s.Ops[o], r.buffers[o]
	at := b.recv[place.Offset:][:place.Bytes]
	if !place.Partial {
		copy(at, payload)
		return
	}
	own := op.shard(b.send, r.rank)[place.Offset:][:place.Bytes]
	reduce.Complete(at, payload, own, op.Type, op.Reduction, op.Factor, r.s.Terms.Ranks)
}

// land puts a payload where the next result is expected, as a socket may that
// must be told before: a wrong guess spoils what nobody has read yet.
func (r *rank) land(p *packet) []byte {
	if int(p.head.Stripe) >= r.s.Terms.Stripes {
		return p.payload
	}
	to, ok := r.member.Expect(int(p.head.Stripe))
	if !ok || to.Bytes < len(p.payload) || r.s.Ops[r.base+int(to.Seq)].InPlace || r.s.rng.IntN(2) == 0 {
		return p.payload
	}
	b := r.buffers[r.base+int(to.Seq)].recv[to.Offset:][:to.Bytes]
	return b[:copy(b, p.payload)]
}

// flush sends what there is to send, and completes what is done.
func (r *rank) flush() {
	if r.crashed || r.told || r.stopped {
		return
	}
	s := r.s
	for i := range s.Terms.Stripes {
		if h, st, ok := r.member.NextStatus(s.now, i); ok {
			r.links[i].send(wired(h, nil, nil, &st))
		}
		for {
			run, ok := r.member.NextRun(i)
			if !ok {
				break
			}
			r.send(i, &run)
		}
	}
	for r.completed >= s.restart { // what is finished directly comes first
		seq, ok := r.member.NextDone()
		if !ok {
			break
		}
		r.complete(r.base+int(seq), false)
	}
	if at, ok := r.member.Deadline(); ok && at != r.timer {
		r.timer = at
		session := r.session
		s.after(max(0, at-s.now), func() {
			if r.session == session && !r.stopped {
				r.member.Expire(s.now)
				r.flush()
			}
		})
	}
}

// send sends some or all of a run.
func (r *rank) send(stripe int, run *innetwork.Run) {
	o := r.base + int(run.Seq)
	n := 1 + r.s.rng.IntN(run.Count)
	shard := r.s.Ops[o].shard(r.buffers[o].send, run.Owner)
	if run.Head.Kind == wire.Kept {
		var body [wire.SlotKeptSize]byte
		h, k := run.Kept(n)
		r.links[stripe].send(wired(h, body[:k.Put(body[:])], nil, nil))
		r.member.Sent(r.s.now, run, n)
		return
	}
	for i := range n {
		from := run.Offset + i*run.Step
		to := min(from+run.Step, run.Offset+run.Bytes)
		r.links[stripe].send(wired(run.Header(i), shard[from:to], nil, nil))
		r.s.result.Sent += to - from
	}
	r.member.Sent(r.s.now, run, n)
}
