package reducescatter

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// world is some ranks, their streams and their switch, in one goroutine. Everything
// that happens is drawn from one seed.
type world struct {
	require.TestingT
	rng    *rand.Rand
	now    innetwork.Time
	ranks  []*rank
	queues map[[2]int][]byte  // of the streams: from, to
	stages []*innetwork.Stage // by stripe; nil while there is no switch
	terms  innetwork.Terms
	loss   float64
	first  uint32 // number of the first call
	calls  []call // the program that all ranks run
}

// call is one Reduce-Scatter or Reduce of the program.
type call struct {
	direct.Op
	inPlace bool
	inputs  [][]byte // by rank
	want    [][]byte // by rank
}

// rank is one of them.
type rank struct {
	*world
	number  int
	lane    *Lane
	inbox   []packet
	flying  map[uint32]direct.Op
	done    int
	through map[uint32]bool
}

type packet struct {
	head    wire.Slot
	payload []byte
	credit  wire.SlotCredit
}

// end is a rank's end of the streams: it takes and gives random amounts.
type end struct{ *rank }

var _ fabric.Streams = end{}

const room = 4000

func (e end) Send(to int, b []byte) int {
	q := [2]int{e.number, to}
	n := min(len(b), room-len(e.queues[q]), 1+e.rng.IntN(room))
	e.queues[q] = append(e.queues[q], b[:n]...)
	return n
}

func (e end) Peek(from, most int) []byte {
	b := e.queues[[2]int{from, e.number}]
	return b[:min(len(b), most)]
}

func (e end) Consume(from, n int) {
	q := [2]int{from, e.number}
	e.queues[q] = append([]byte{}, e.queues[q][n:]...)
}

func (e end) Err(int) error       { return nil }
func (e end) Sleep(time.Duration) {}
func (e end) Wake()               {}
func (e end) Close() error        { return nil }
func (e end) Stats() fabric.Stats { return fabric.Stats{} }

func newWorld(t require.TestingT, seed uint64, size, calls int) *world {
	w := &world{
		TestingT: t, rng: rand.New(rand.NewPCG(seed, 5)), //nolint:gosec // repeatable
		queues: map[[2]int][]byte{},
	}
	types := []reduce.Type{reduce.F32, reduce.BF16, reduce.E4M3, reduce.E5M2, reduce.I8, reduce.F64}
	ops := []reduce.Op{reduce.Sum, reduce.Avg, reduce.Max, reduce.PremulSum}
	for range calls {
		c := call{
			Op:      direct.Op{Count: max(0, w.rng.IntN(800)-100), Type: types[w.rng.IntN(len(types))], Reduction: ops[w.rng.IntN(len(ops))], Factor: 0.5},
			inPlace: w.rng.IntN(2) == 0,
		}
		shards := size
		if w.rng.IntN(3) == 0 {
			c.To, shards = wire.ToRank(w.rng.IntN(size)), 1
		}
		for range size {
			b := make([]byte, c.Bytes()*shards)
			for i := range b {
				b[i] = byte(w.rng.Uint32())
			}
			c.inputs = append(c.inputs, b)
		}
		for r := range size {
			var sum []byte
			if c.To.Includes(r) {
				var srcs [][]byte
				for q := range size {
					o := direct.Op{Send: c.inputs[q], To: c.To, Count: c.Count, Type: c.Type}
					srcs = append(srcs, o.Shard(r))
				}
				sum = make([]byte, c.Bytes())
				reduce.Fold(sum, reduce.InOrder(srcs, r, c.Type), c.Type, c.Reduction, c.Factor)
			}
			c.want = append(c.want, sum)
		}
		w.calls = append(w.calls, c)
	}
	for r := range size {
		w.ranks = append(w.ranks, &rank{
			world: w, number: r, lane: New(r, size), flying: map[uint32]direct.Op{}, through: map[uint32]bool{},
		})
	}
	return w
}

// start brings up a switch with fresh slots.
func (w *world) start() {
	w.terms = innetwork.Terms{
		Job: w.rng.Uint64(), Ranks: len(w.ranks), Stripes: 1 + w.rng.IntN(3), Chunk: 8 * (1 + w.rng.IntN(20)),
		Slots: 8 << w.rng.IntN(4), Cutoff: time.Millisecond, Reorder: 100 * time.Microsecond,
	}
	owner := make([]int, len(w.ranks))
	for r := range owner {
		owner[r] = r
	}
	w.stages = nil
	for i := range w.terms.Stripes {
		c := innetwork.StageConfig{Terms: w.terms, Stripe: i, Members: len(w.ranks), Owner: owner, Reproducible: true}
		c.Memory = make([]byte, innetwork.MemoryFor(&c))
		s, err := innetwork.NewStage(c)
		require.NoError(w, err)
		w.stages = append(w.stages, s)
	}
	for _, r := range w.ranks {
		r.inbox = nil
	}
}

func (w *world) lost() bool { return w.rng.Float64() < w.loss }

// step lets one rank do a round.
func (w *world) step() {
	w.now += time.Duration(w.rng.IntN(100)) * time.Microsecond
	w.ranks[w.rng.IntN(len(w.ranks))].step()
}

func (r *rank) step() {
	next := int(r.lane.posted - r.first)
	if next < len(r.calls) && r.lane.Room() > 0 && r.rng.IntN(3) == 0 {
		r.post(&r.calls[next])
	}
	if m := r.lane.Member(); m != nil && r.stages != nil {
		r.exchange(m)
	}
	r.lane.Work(true)
	require.NoError(r, r.lane.Err())
	for {
		number, ok := r.lane.NextDone()
		if !ok {
			return
		}
		r.complete(number)
	}
}

func (r *rank) post(c *call) {
	o := c.Op
	o.Send = append([]byte{}, c.inputs[r.number]...)
	switch {
	case c.inPlace:
		o.Recv = o.Shard(r.number)
	case o.To.Includes(r.number):
		o.Recv = make([]byte, o.Bytes())
	}
	through := r.lane.Switched()
	number := r.lane.Post(r.now, o)
	r.through[number] = through
	r.flying[number] = o
}

// complete checks a result, and then spoils the buffers, which nobody may need.
func (r *rank) complete(number uint32) {
	o, ok := r.flying[number]
	require.True(r, ok, "rank %d: operation %d is done twice, or was never posted", r.number, number)
	require.Equal(r, r.calls[number-r.first].want[r.number], o.Recv, "rank %d, operation %d", r.number, number)
	for i := range o.Send {
		o.Send[i] = 0xa5
	}
	delete(r.flying, number)
	r.done++
}

// exchange moves some datagrams between a rank and the switch.
func (r *rank) exchange(m *innetwork.Member) {
	if at, ok := m.Deadline(); ok && at <= r.now {
		m.Expire(r.now)
	}
	for n := r.rng.IntN(6); n > 0 && len(r.inbox) > 0; n-- {
		i := 0
		if r.loss > 0 {
			i = r.rng.IntN(min(3, len(r.inbox))) // reordered
		}
		p := r.inbox[i]
		r.inbox = append(r.inbox[:i], r.inbox[i+1:]...)
		if p.head.Kind == wire.Allowance {
			m.Credit(r.now, &p.head, &p.credit)
			continue
		}
		if at, ok := m.Place(r.now, &p.head, len(p.payload)); ok {
			o := r.lane.Buffers(at.Seq)
			to := o.Recv[at.Offset:][:at.Bytes]
			if at.Partial {
				reduce.Complete(to, p.payload, o.Shard(r.number)[at.Offset:][:at.Bytes], o.Type, o.Reduction, o.Factor, len(r.ranks))
			} else {
				copy(to, p.payload)
			}
			m.Received(r.now, &p.head)
		}
	}
	for i, s := range r.stages {
		if h, st, ok := m.NextStatus(r.now, i); ok && !r.lost() {
			s.Status(r.now, r.number, &h, &st)
		}
		r.contribute(m, s, i)
		r.deliver(s)
	}
}

func (r *rank) contribute(m *innetwork.Member, s *innetwork.Stage, stripe int) {
	for range r.rng.IntN(4) {
		run, ok := m.NextRun(stripe)
		if !ok {
			return
		}
		o := r.lane.Buffers(run.Seq)
		shard := o.Shard(run.Owner)
		n := 1 + r.rng.IntN(run.Count)
		if run.Head.Kind == wire.Kept {
			if h, k := run.Kept(n); !r.lost() {
				s.Kept(r.number, &h, &k)
			}
			m.Sent(r.now, &run, n)
			continue
		}
		for i := range n {
			h := run.Header(i)
			at := run.Offset + i*run.Step
			if !r.lost() {
				s.Contribute(r.number, &h, shard[at:min(at+run.Step, run.Offset+run.Bytes)])
			}
		}
		m.Sent(r.now, &run, n)
	}
}

// deliver takes what the switch has for anybody.
func (r *rank) deliver(s *innetwork.Stage) {
	for range 4 {
		out, ok := s.Next()
		if !ok {
			break
		}
		if !r.lost() {
			to := r.ranks[out.Member]
			to.inbox = append(to.inbox, packet{head: out.Head, payload: append([]byte{}, out.Payload...)})
		}
		s.Pop(r.now, &out)
	}
	for {
		member, h, c, ok := s.NextCredit()
		if !ok {
			break
		}
		c.Missing.Bits = append([]byte{}, c.Missing.Bits...)
		if !r.lost() {
			to := r.ranks[member]
			to.inbox = append(to.inbox, packet{head: h, credit: c})
		}
	}
	require.NoError(r, s.Err())
}
