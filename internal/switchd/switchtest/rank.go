// Package switchtest has a rank for tests of the aggregation node: internal/protocol/innetwork
// over the sockets of a session, and nothing else of a communicator.
package switchtest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Rank is a member of a job. It belongs to one goroutine at a time.
type Rank struct {
	Session *session.Session
	Terms   innetwork.Terms
	// Drop, if set, is asked before a datagram is sent, and after one was
	// received, whether it is lost.
	Drop func() bool
	// Sent and Received count bytes of datagrams, headers included.
	Sent, Received uint64

	rank    int
	member  *innetwork.Member
	batch   *datagram.Batch
	out, in *session.Sealer
	poller  *sys.Poller
	start   time.Time
	ops     []op // posted, oldest first
	body    [wire.SlotBodySize + wire.MaxSlotSet]byte
}

type op struct {
	innetwork.Op
	seq        uint32
	send, recv []byte
}

func (o *op) shard(rank int) []byte {
	n := o.Count * o.Type.Size()
	return o.send[rank*n : (rank+1)*n]
}

// Join dials the node at addr and waits until all ranks are there.
func Join(ctx context.Context, addr string, h session.Hello) (*Rank, error) {
	s, err := session.Dial(ctx, addr, h)
	if err != nil {
		return nil, err
	}
	r, err := Attach(ctx, s, h.Rank)
	if err != nil {
		_ = s.Close(nil) // err says more
	}
	return r, err
}

// Attach waits until all ranks of a session that was dialed are there.
func Attach(ctx context.Context, s *session.Session, rank int) (*Rank, error) {
	t, number, err := s.Ready(ctx)
	if err != nil {
		return nil, err
	}
	t.Cutoff, t.Reorder = 5*time.Millisecond, 200*time.Microsecond
	r := &Rank{Session: s, Terms: t, rank: rank, member: innetwork.NewMember(rank, number, t), start: time.Now()}
	r.out, r.in = s.Seals()
	if r.batch, err = datagram.NewBatch(s.Head(), t.Chunk); err != nil {
		return nil, err
	}
	if r.poller, err = sys.NewPoller(); err != nil {
		return nil, err
	}
	for i, socket := range s.Sockets() {
		if err := r.poller.Watch(socket.FD(), i, unix.EPOLLIN|unix.EPOLLET); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close leaves the job.
func (r *Rank) Close() error {
	err := r.Session.Close(nil)
	_ = r.poller.Close()
	_ = r.batch.Close()
	return err
}

// ReduceScatter runs an operation to its end. send holds a shard for each rank, recv takes one.
func (r *Rank) ReduceScatter(ctx context.Context, o innetwork.Op, send, recv []byte) error {
	r.Post(o, send, recv)
	return r.Finish(ctx)
}

// Post begins an operation.
func (r *Rank) Post(o innetwork.Op, send, recv []byte) {
	seq := r.member.Post(r.now(), o)
	r.ops = append(r.ops, op{o, seq, send, recv})
}

// Finish works until all operations are done, the session is lost, or ctx ends.
func (r *Rank) Finish(ctx context.Context) error {
	for len(r.ops) > 0 {
		if err := r.Work(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Work does one round, and sleeps if there is nothing to do.
func (r *Rank) Work(ctx context.Context) error {
	busy := false
	for i, socket := range r.Session.Sockets() {
		for {
			n, err := r.batch.Receive(socket, nil, 16, &sink{r, i})
			if err != nil || n == 0 {
				break // a refused datagram: the session says what it means
			}
			busy = true
		}
	}
	now := r.now()
	r.member.Expire(now)
	for i, socket := range r.Session.Sockets() {
		if h, st, ok := r.member.NextStatus(now, i); ok {
			r.put(&h, r.body[:st.Put(r.body[:])])
			_, _ = r.batch.Flush(socket) // lost: it will be repeated
		}
		if run, ok := r.member.NextRun(i); ok {
			r.run(socket, &run)
			busy = true
		}
	}
	for {
		seq, ok := r.member.NextDone()
		if !ok {
			break
		}
		if r.ops[0].seq != seq {
			return fmt.Errorf("operation %d is done before %d", seq, r.ops[0].seq)
		}
		r.ops = r.ops[1:]
		busy = true
	}
	select {
	case <-r.Session.Lost():
		return r.Session.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	if !busy {
		d := 50 * time.Millisecond
		if at, ok := r.member.Deadline(); ok {
			d = min(d, at-r.now())
		}
		r.poller.Wait(max(d, 0))
	}
	return nil
}

func (r *Rank) now() innetwork.Time { return time.Since(r.start) }

func (r *Rank) op(seq uint32) *op {
	for i := range r.ops {
		if r.ops[i].seq == seq {
			return &r.ops[i]
		}
	}
	return nil
}

// run sends a run; chunks that are dropped count as sent.
func (r *Rank) run(socket *datagram.Socket, run *innetwork.Run) {
	shard := r.op(run.Seq).shard(run.Owner)[run.Offset:][:run.Bytes]
	if run.Head.Kind == wire.Kept {
		h, k := run.Kept(run.Count)
		r.put(&h, r.body[:k.Put(r.body[:])])
	} else {
		for i := range run.Count {
			h := run.Header(i)
			r.put(&h, shard[i*run.Step:min((i+1)*run.Step, run.Bytes)])
		}
	}
	if added := r.batch.Added(); added > 0 {
		if sent, err := r.batch.Flush(socket); err == nil && sent < added {
			return // no room: the same run comes again
		}
	}
	r.member.Sent(r.now(), run, run.Count)
}

func (r *Rank) put(h *wire.Slot, payload []byte) {
	if r.Drop != nil && r.Drop() {
		return
	}
	head := r.batch.Add(payload)
	h.Put(head)
	if r.out != nil {
		r.out.Seal(head, payload)
	}
	r.Sent += uint64(len(head) + len(payload))
}

type sink struct {
	*Rank
	stripe int
}

// Datagram implements datagram.Sink.
func (s *sink) Datagram(head, payload []byte) {
	var h wire.Slot
	if s.Drop != nil && s.Drop() || h.Get(head) != nil || s.in != nil && !s.in.Open(head, payload) {
		return
	}
	s.Received += uint64(len(head) + len(payload))
	switch h.Kind {
	case wire.Allowance:
		var c wire.SlotCredit
		if c.Get(payload) == nil {
			s.member.Credit(s.now(), &h, &c)
		}
	case wire.Result:
		if p, ok := s.member.Place(s.now(), &h, len(payload)); ok {
			s.take(&p, payload)
			s.member.Received(s.now(), &h)
		}
	}
}

// take puts a result in its place.
func (r *Rank) take(p *innetwork.Place, payload []byte) {
	o := r.op(p.Seq)
	at := o.recv[p.Offset:][:p.Bytes]
	if p.Partial {
		reduce.Complete(at, payload, o.shard(r.rank)[p.Offset:][:p.Bytes], o.Type, o.Reduction, o.Factor, r.Terms.Ranks)
		return
	}
	copy(at, payload)
}

// Equal reports the first byte in which two results differ.
func Equal(want, got []byte) error {
	if bytes.Equal(want, got) {
		return nil
	}
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Errorf("byte %d of %d is %#x; want %#x", i, len(want), got[i], want[i])
		}
	}
	return fmt.Errorf("%d bytes; want %d", len(got), len(want))
}
