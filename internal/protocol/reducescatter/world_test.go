package reducescatter

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// world is some ranks, their streams and their switch, in one goroutine. Everything
// that happens is drawn from one seed.
type world struct {
	require.TestingT
	rng     *rand.Rand
	now     innetwork.Time
	ranks   []*rank
	queues  map[[2]int][]byte // of the streams: from, to
	stripes []stripe          // of the switch; nil while there is none
	terms   innetwork.Terms
	loss    float64
	first   uint32 // number of the first call
	calls   []call // the program that all ranks run
}

// stripe is one of the switch.
type stripe struct {
	*node.Node
	branches []*branch // by member
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
	conn    *SwitchConn
	port    *port
	flying  map[uint32]direct.Op
	done    int
	through map[uint32]bool
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
		TestingT: t, rng: rand.New(rand.NewPCG(seed, 5)),
		queues: map[[2]int][]byte{},
	}
	types := []reduce.Type{reduce.F32, reduce.BF16, reduce.E4M3, reduce.E5M2, reduce.I8, reduce.F64}
	ops := []reduce.Op{reduce.Sum, reduce.Avg, reduce.Max, reduce.PremulSum}
	for range calls {
		c := call{
			Op: direct.Op{
				Op: collective.Op{
					Count: max(0, w.rng.IntN(800)-100), Type: types[w.rng.IntN(len(types))], Reduction: ops[w.rng.IntN(len(ops))],
					Factor: 0.5,
				},
			},
			inPlace: w.rng.IntN(2) == 0,
		}
		if c.Type == reduce.I8 && c.Reduction == reduce.Max {
			c.Reduction = reduce.Bxor
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
					o := direct.Op{Op: collective.Op{To: c.To, Count: c.Count, Type: c.Type}, Send: c.inputs[q]}
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
	w.stripes = nil
	for i := range w.terms.Stripes {
		c := innetwork.StageConfig{Terms: w.terms, Stripe: i, Members: len(w.ranks), Owner: owner, Reproducible: true}
		c.Memory = make([]byte, innetwork.MemoryFor(&c))
		n, err := node.New(c)
		require.NoError(w, err)
		s := stripe{Node: n}
		var links []node.Link
		for r := range w.ranks {
			b := &branch{world: w, node: n, member: r}
			s.branches, links = append(s.branches, b), append(links, b)
		}
		n.Connect(links, nil, true)
		w.stripes = append(w.stripes, s)
	}
	for _, r := range w.ranks {
		r.port = nil
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
	if r.lane.member != nil && r.stripes != nil {
		r.port.left = r.rng.IntN(6)
		r.conn.Work(r.now)
		for _, s := range r.stripes {
			s.Work(r.now)
			require.NoError(r, s.Err())
		}
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
