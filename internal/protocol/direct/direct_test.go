package direct_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// network joins ranks by byte queues that take and give random amounts, so
// that every split of headers, shards and padding comes up.
type network struct {
	queues map[[2]int][]byte // from, to
	room   int
	rng    *rand.Rand
}

type end struct {
	*network
	rank int
	err  map[int]error
}

var _ fabric.Streams = (*end)(nil)

func (e *end) Send(to int, b []byte) int {
	q := [2]int{e.rank, to}
	n := min(len(b), e.room-len(e.queues[q]), 1+e.rng.IntN(e.room))
	e.queues[q] = append(e.queues[q], b[:n]...)
	return n
}

func (e *end) Peek(from, most int) []byte {
	b := e.queues[[2]int{from, e.rank}]
	return b[:min(len(b), most)]
}

func (e *end) Consume(from, n int) {
	q := [2]int{from, e.rank}
	e.queues[q] = append([]byte{}, e.queues[q][n:]...)
}

func (e *end) Err(rank int) error  { return e.err[rank] }
func (e *end) Sleep(time.Duration) {}
func (e *end) Wake()               {}
func (e *end) Close() error        { return nil }
func (e *end) Stats() fabric.Stats { return fabric.Stats{} }

// rank is one with its streams, and what drives it.
type rank struct {
	*direct.Comm
	end     *end
	streams *reducescatter.Streams
}

func newNetwork(size, room int, seed uint64) []*rank {
	n := &network{queues: map[[2]int][]byte{}, room: room, rng: rand.New(rand.NewPCG(seed, 1))}
	comms := make([]*rank, size)
	for r := range comms {
		c, e := direct.New(r, size), &end{network: n, rank: r, err: map[int]error{}}
		comms[r] = &rank{c, e, reducescatter.NewStreams(r, size, c, e)}
	}
	return comms
}

// target draws the ranks that get the result.
func target(rng *rand.Rand, size int) wire.Target {
	if rng.IntN(2) == 0 {
		return 0
	}
	return wire.ToRank(rng.IntN(size))
}

// giver draws, for some Reduces, a rank other than the owner that alone contributes.
func giver(rng *rand.Rand, to wire.Target, size int) wire.Target {
	if root, one := to.Root(); one && size > 1 && rng.IntN(2) == 0 {
		return wire.ToRank((root + 1 + rng.IntN(size-1)) % size)
	}
	return 0
}

// random returns a rank's input: n random bytes for each rank that gets a result.
func random(rng *rand.Rand, to wire.Target, size, n int) []byte {
	if _, one := to.Root(); !one {
		n *= size
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// sumOf returns the result of an owner.
func sumOf(calls []direct.Op, owner int) []byte {
	if giver, one := calls[owner].Of.Root(); one {
		return append([]byte{}, calls[giver].Send...)
	}
	srcs := make([][]byte, len(calls))
	for q := range srcs {
		srcs[q] = append([]byte{}, calls[q].Shard(owner)...)
	}
	o := &calls[owner]
	sum := make([]byte, o.Bytes())
	reduce.Fold(sum, reduce.InOrder(srcs, owner, o.Type), o.Type, o.Reduction, o.Factor)
	return sum
}

func TestAnySizeAndSplit(t *testing.T) {
	types := []reduce.Type{reduce.I8, reduce.I16, reduce.F32, reduce.F64, reduce.BF16, reduce.E4M3, reduce.E5M2}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(t, "ranks")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		comms := newNetwork(size, rapid.IntRange(64, 5000).Draw(t, "room"), rng.Uint64())
		ops := rapid.IntRange(1, 5).Draw(t, "operations")
		want, got := make([][][]byte, ops), make([][][]byte, ops)
		for i := range ops {
			typ := rapid.SampledFrom(types).Draw(t, "type")
			op := rapid.SampledFrom([]reduce.Op{reduce.Sum, reduce.Avg, reduce.Max, reduce.PremulSum}).Draw(t, "op")
			if typ == reduce.I16 && op == reduce.Max {
				op = reduce.Bxor
			}
			count := rapid.IntRange(0, 3000).Draw(t, "count")
			n := count * typ.Size()
			to := target(rng, size)
			of := giver(rng, to, size)
			calls := make([]direct.Op, size)
			for r := range calls {
				calls[r] = direct.Op{
					Op: collective.Op{To: to, Count: count, Type: typ, Reduction: op, Factor: 3}, Send: random(rng, to, size, n),
					Of: of,
				}
			}
			for r := range comms {
				var sum, recv []byte
				if to.Includes(r) {
					sum, recv = sumOf(calls, r), make([]byte, n)
				}
				if i%2 == 1 {
					recv = calls[r].Shard(r) // in place
				}
				want[i], got[i] = append(want[i], sum), append(got[i], recv)
			}
			for r := range comms {
				calls[r].Recv = got[i][r]
				comms[r].Post(calls[r], uint32(i), nil)
			}
		}
		done := make([]int, size)
		for range 200000 {
			r := rng.IntN(size)
			comms[r].streams.Work(true)
			for {
				seq, ok := comms[r].NextDone()
				if !ok {
					break
				}
				require.EqualValues(t, done[r], seq, "completions come in posting order")
				done[r]++
			}
		}
		for r := range comms {
			require.NoError(t, comms[r].Err())
			require.Equal(t, ops, done[r], "rank %d", r)
			for i := range ops {
				require.Equal(t, want[i][r], got[i][r], "operation %d, rank %d", i, r)
			}
		}
	})
}

func TestMismatch(t *testing.T) {
	base := direct.Op{
		Op: collective.Op{Count: 2, Type: reduce.F32, Reduction: reduce.Sum}, Send: make([]byte, 16), Recv: make([]byte, 8),
	}
	floats := collective.Op{Count: 2, Type: reduce.F32, Reduction: reduce.Sum}
	for name, op := range map[string]direct.Op{
		"type":  {Op: collective.Op{Count: 2, Type: reduce.I32, Reduction: reduce.Sum}},
		"op":    {Op: collective.Op{Count: 2, Type: reduce.F32, Reduction: reduce.Max}},
		"count": {Op: collective.Op{Count: 1, Type: reduce.F32, Reduction: reduce.Sum}},
		"root":  {Op: collective.Op{To: wire.ToRank(1), Count: 2, Type: reduce.F32, Reduction: reduce.Sum}},
		"giver": {Op: floats, Of: wire.ToRank(1)},
	} {
		t.Run(name, func(t *testing.T) {
			comms := newNetwork(2, 4096, 1)
			comms[0].Post(base, 0, nil)
			op.Send, op.Recv = base.Send, base.Recv
			comms[1].Post(op, 0, nil)
			for range 100 {
				comms[0].streams.Work(true)
				comms[1].streams.Work(true)
			}
			for r, c := range comms {
				var m *collective.MismatchError
				require.ErrorAs(t, c.Err(), &m)
				assert.Equal(t, [2]int{r, 1 - r}, m.Who)
				_, ok := c.NextDone()
				assert.False(t, ok)
			}
		})
	}
}

// TestMismatchOfCalls: steps of different calls do not go together, and the error names the calls or, if these are the
// same, the steps in the headers.
func TestMismatchOfCalls(t *testing.T) {
	call := wire.Call{Collective: wire.Reduce, Op: uint8(reduce.Avg), Root: 5, Number: 3, Bytes: 400}
	step := collective.Op{To: wire.ToRank(1), Count: 2, Type: reduce.F32, Reduction: reduce.Sum, Call: call}
	root, shards, factor, length := step, step, step, step
	root.Call.Root = 4
	shards.Call.Collective, shards.Call.Root = wire.ReduceScatter, 0
	factor.Call.Op, factor.Call.Factor = uint8(reduce.PremulSum), 0.5
	length.Count = 1
	const mine = "reduce to rank 5 number 3 (avg of f32, 400 bytes a shard)"
	for _, c := range []struct {
		its    collective.Op
		what   [2]string
		called bool
	}{
		{root, [2]string{mine, "reduce to rank 4 number 3 (avg of f32, 400 bytes a shard)"}, true},
		{shards, [2]string{mine, "reduce-scatter number 3 (avg of f32, 400 bytes a shard)"}, true},
		{factor, [2]string{mine, "reduce to rank 5 number 3 (premulsum of f32, factor 0.5, 400 bytes a shard)"}, true},
		{length, [2]string{"reduce to rank 1 number 0 (sum of f32, 8 bytes a shard)",
			"reduce to rank 1 number 0 (sum of f32, 4 bytes a shard)"}, false},
	} {
		comms := newNetwork(2, 4096, 1)
		comms[0].Post(direct.Op{Op: step, Send: make([]byte, 8), Recv: make([]byte, 8)}, 0, nil)
		comms[1].Post(direct.Op{Op: c.its, Send: make([]byte, 8), Recv: make([]byte, 8)}, 0, nil)
		for range 100 {
			comms[0].streams.Work(true)
			comms[1].streams.Work(true)
		}
		var m *collective.MismatchError
		require.ErrorAs(t, comms[0].Err(), &m)
		assert.Equal(t, c.what, [2]string{m.What[0].String(), m.What[1].String()})
		assert.Equal(t, c.called, m.Called)
	}
	of := direct.Op{Op: step}
	assert.Equal(t, mine, of.Called())
	assert.Empty(t, (&direct.Op{Op: collective.Op{Type: reduce.F32}}).Called())
}

func TestGarbageAndBrokenStreams(t *testing.T) {
	comms := newNetwork(2, 4096, 1)
	e := comms[0].end
	e.queues[[2]int{1, 0}] = make([]byte, 64) // version 0
	comms[0].Post(direct.Op{Op: collective.Op{Count: 1, Type: reduce.F32}, Send: make([]byte, 8), Recv: make([]byte, 4)},
		0, nil)
	comms[0].streams.Work(true)
	var b *direct.BrokenError
	require.ErrorAs(t, comms[0].Err(), &b)
	assert.Equal(t, 1, b.Rank)

	comms = newNetwork(2, 4096, 1)
	gone := errors.New("gone")
	comms[0].end.err[1] = gone
	comms[0].streams.Check()
	require.ErrorIs(t, comms[0].Err(), gone)
	assert.False(t, comms[0].streams.Work(true))
}
