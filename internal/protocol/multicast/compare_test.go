package multicast

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestMismatch lets one rank call another operation than the rest, for every pair of different
// operations, large and small, in both orders of arrival: some rank must fail, and say what two of
// them have called.
func TestMismatch(t *testing.T) {
	ops := []Op{
		{Collective: wire.Barrier}, {Collective: wire.Allgather}, {Collective: wire.Allgather, Bytes: 64},
		{Collective: wire.Allgather, Bytes: 100_000}, {Collective: wire.Allgather, Bytes: 100_001},
		{Collective: wire.Broadcast, Bytes: 64}, {Collective: wire.Broadcast, Bytes: 64, Root: 1},
		{Collective: wire.Broadcast, Bytes: 100_000}, {Collective: wire.Broadcast, Bytes: 100_000, Root: 1},
		{Collective: wire.Barrier, Sync: true},
	}
	for _, odd := range []struct{ rank, size int }{{1, 2}, {0, 3}, {2, 3}, {3, 5}} {
		for i, a := range ops {
			for j, b := range ops {
				if i == j {
					continue
				}
				for _, early := range []bool{false, true} {
					mismatch(t, a, b, odd.rank, odd.size, early)
				}
			}
		}
	}
}

// mismatch lets all ranks call a, but one, which calls b, maybe after the others' messages have
// arrived.
func mismatch(t *testing.T, a, b Op, odd, size int, early bool) {
	n := newNet(small(size, 1024))
	called := make([]Op, size)
	for r := range n.comms {
		called[r] = a
		if r != odd {
			require.NoError(t, n.post(a, r))
		}
	}
	if called[odd] = b; early {
		n.run()
	}
	err := n.post(b, odd)
	n.tick(100 * time.Millisecond)
	for _, c := range n.comms {
		if err == nil {
			err = c.Err()
		}
	}
	var m *collective.MismatchError
	require.ErrorAs(t, err, &m, "rank %d of %d calls %v, the others %v, early %t\n%s", odd, size, b, a, early,
		n.log.String())
	for k, r := range m.Who {
		require.True(t, strings.HasPrefix(m.What[k].String(), called[r].String()), "%q does not tell of %v", m.What[k],
			called[r])
	}
	require.NotEqual(t, m.What[0], m.What[1])
	require.ErrorContains(t, err, "operation 0")
}

// TestMismatchOfCalls: ranks that post the same operation, as a step of different calls, are told what these
// are, however the operation travels and in whichever order they come to it; and nobody takes a chunk of the other
// call.
func TestMismatchOfCalls(t *testing.T) {
	steps := []Op{
		{Collective: wire.Barrier}, {Collective: wire.Barrier, Sync: true},
		{Collective: wire.Allgather}, {Collective: wire.Allgather, Bytes: 64}, {Collective: wire.Allgather, Bytes: 100_000},
		{Collective: wire.Broadcast}, {Collective: wire.Broadcast, Bytes: 64, Root: 1},
		{Collective: wire.Broadcast, Bytes: 100_000},
		{Collective: wire.Broadcast, Bytes: 100_000, Sync: true, Root: 1},
	}
	calls := []wire.Call{
		{Collective: wire.Broadcast, Root: 0, Number: 7, Bytes: 64},
		{Collective: wire.Broadcast, Root: 1, Number: 7, Bytes: 64},
		{Collective: wire.Allgather, Number: 7, Bytes: 64}, {Collective: wire.Broadcast, Root: 0, Number: 8, Bytes: 64},
	}
	for _, lossless := range []bool{false, true} {
		for _, odd := range []struct{ rank, size int }{{1, 2}, {0, 3}, {2, 3}, {3, 5}} {
			for _, step := range steps {
				for _, its := range calls[1:] {
					for _, early := range []bool{false, true} {
						for _, first := range []bool{false, true} { // the chunks to the odd one are lost, at first
							mismatchOfCalls(t, lossless, step, calls[0], its, odd.rank, odd.size, early, first)
						}
					}
				}
			}
		}
	}
}

func mismatchOfCalls(t *testing.T, lossless bool, step Op, most, its wire.Call, odd, size int, early, lost bool) {
	if lossless && (step.Sync || early || lost) {
		return
	}
	cfg := small(size, 1024)
	cfg.Lossless = lossless
	n := newNet(cfg)
	n.lose = func(p packet) bool { return lost && p.to == odd && p.data != nil && p.data.IsMulticast() }
	n.before = func(p packet) {
		if p.data != nil && n.comms[p.to].ops.at(p.data.Seq).state == active {
			called := most
			if p.to == odd {
				called = its
			}
			if _, ok := n.comms[p.to].Place(n.now, p.data, min(1024, step.Bytes)); ok {
				require.Equal(t, called.Digest(), p.data.Call, "a chunk of another call is taken")
			}
		}
	}
	other := step
	step.Call, other.Call = most, its
	for r := range n.comms {
		if r != odd {
			require.NoError(t, n.post(step, r))
		}
	}
	if early {
		n.run()
	}
	err := n.post(other, odd)
	n.tick(100 * time.Millisecond)
	for _, c := range n.comms {
		if err == nil {
			err = c.Err()
		}
	}
	var m *collective.MismatchError
	require.ErrorAs(t, err, &m, "lossless %t, %v: rank %d of %d, early %t, lost %t\n%s", lossless, step, odd, size, early,
		lost, n.log.String())
	require.True(t, m.Called)
	for k, r := range m.Who {
		called := most
		if r == odd {
			called = its
		}
		require.True(t, strings.HasPrefix(m.What[k].String(), opOfCall(&called).String()), "%q does not tell of %+v",
			m.What[k], called)
	}
	require.NotEqual(t, m.What[0], m.What[1])
	if most.Number == its.Number {
		require.ErrorContains(t, err, "operation 7")
	} else {
		require.ErrorContains(t, err, "as operation 8")
	}
}

// A datagram of another operation, which anybody can send, ends nothing: it is dropped and counted, ranks compare their
// calls, and the true one is still taken, no matter when the forged one comes.
func TestForgedDatagramEndsNothing(t *testing.T) {
	op := Op{Collective: wire.Allgather, Bytes: 64}
	for name, forged := range map[string]wire.Data{
		"size":       {Collective: wire.Allgather, Bytes: 4711},
		"collective": {Collective: wire.Broadcast, Bytes: 64},
		"to come":    {Collective: wire.Allgather, Bytes: 128, Seq: 2},
	} {
		forged.Job, forged.Root = job, 1
		for _, when := range []string{"early", "active", "done"} {
			t.Run(name+", "+when, func(t *testing.T) {
				n := newNet(small(3, 1024))
				forge := func() {
					h := forged
					if _, ok := n.comms[0].Place(n.now, &h, min(int(h.Bytes), 1024)); ok {
						n.comms[0].Received(n.now, &h)
					}
					n.drive(0)
				}
				if when == "early" {
					forge()
				}
				require.NoError(t, n.post(op, 0))
				if when == "active" {
					forge()
					forge()
				}
				require.NoError(t, n.post(op, 1, 2))
				n.tick(time.Second)
				if when == "done" {
					forge()
					forge()
				}
				for range 3 {
					require.NoError(t, n.post(op, 0, 1, 2))
					n.tick(time.Second)
				}
				require.True(t, n.done(), n.log.String())
				for _, c := range n.comms {
					require.NoError(t, c.Err())
				}
				if name != "to come" && when != "early" {
					assert.EqualValues(t, 2, n.comms[0].Stats().Mismatched)
					assert.Equal(t, 3, strings.Count(n.log.String(), "compare 0"), "once round the ring:\n%s", n.log.String())
				}
			})
		}
	}
}

// What a forged datagram has begun leaves nothing behind where another operation is posted: here it
// was of the third shard, and the one posted has one shard.
func TestForgedBeginningIsForgotten(t *testing.T) {
	n := newNet(small(3, 1024))
	h := wire.Data{Job: job, Collective: wire.Allgather, Root: 2, Bytes: 64}
	_, ok := n.comms[0].Place(0, &h, 64)
	require.True(t, ok)
	n.comms[0].Received(0, &h)
	require.NoError(t, n.post(Op{Collective: wire.Broadcast, Root: 1, Bytes: 200_000}, 0, 2))
	n.run()
	require.NoError(t, n.post(Op{Collective: wire.Broadcast, Root: 1, Bytes: 200_000}, 1))
	for len(n.way) > 0 {
		_, _ = n.comms[0].Expect(nil)
		n.step()
	}
	require.True(t, n.done())
}

// A chunk of an operation that was posted two epochs ahead, which nobody can have sent, is not put
// where a chunk of an operation lies that is not done; nor, while that one's neighbour may still
// fetch it, is it taken later. Once the rank has entered the barrier it is.
func TestForgedChunkOfALaterEpochIsDropped(t *testing.T) {
	n := newNet(small(2, 64))
	op := Op{Collective: wire.Allgather, Bytes: 64}
	synced := Op{Collective: wire.Allgather, Bytes: 64, Sync: true}
	c := n.comms[0]
	place := func(seq uint32) (Place, bool) {
		return c.Place(n.now, &wire.Data{
			Job: job, Collective: wire.Allgather, Root: 1, Seq: seq, Bytes: 64, Arena: c.ops.at(seq).mode.arena,
		}, 64)
	}
	for _, o := range []Op{op, synced, synced} {
		require.NoError(t, n.post(o, 0))
	}
	first, ok := place(0)
	require.True(t, ok)
	refused := func(seq uint32) {
		t.Helper()
		dropped := c.Stats().Dropped
		_, ok := place(seq)
		require.False(t, ok, "operation %d has not entered its barrier", seq)
		require.Equal(t, dropped+1, c.Stats().Dropped)
	}
	refused(1)
	refused(2)
	require.NoError(t, n.post(op, 1))
	n.run() // operation 0 is done, and rank 0 enters the barrier of operation 1
	require.True(t, c.ops.at(1).barrier.entered)
	require.False(t, c.ops.at(1).barrier.open)
	_, ok = place(1)
	require.True(t, ok)
	refused(2)
	require.NoError(t, n.post(synced, 1))
	n.run()
	require.True(t, c.ops.at(2).barrier.entered)
	last, ok := place(2)
	require.True(t, ok)
	require.Equal(t, [2]any{first.Offset, first.Second}, [2]any{last.Offset, last.Second}, "it lies where operation 0 lay")
	require.NoError(t, n.post(synced, 1))
	n.run()
	require.True(t, n.done(), n.log.String())
}

// forger draws datagrams that are well-formed, but belong to another operation than their number says.
type forger struct {
	*rand.Rand
	cfg Config
	ops []Op
}

func (f *forger) next(around uint32) (h wire.Data, size int) {
	for {
		h = wire.Data{
			Job: job, Collective: wire.Collective(1 + f.IntN(3)), Root: uint16(f.IntN(f.cfg.Size)),
			Seq: around + uint32(f.IntN(100)) - 20, PSN: uint32(f.IntN(4)), Bytes: uint32(f.IntN(200)),
			Arena: uint32(f.IntN(f.cfg.Arena/64) * 64),
		}
		if f.IntN(4) == 0 {
			h.Arena = NotEager
		}
		o := Op{Collective: h.Collective, Bytes: int(h.Bytes)}
		if o.Collective == wire.Broadcast {
			o.Root = int(h.Root)
		}
		s := shapeOf(o, f.cfg.Size, f.cfg.Chunk)
		if int(h.Seq) >= len(f.ops) || !f.ops[h.Seq].same(o) {
			return h, s.length(int(h.PSN))
		}
	}
}

// TestForgedDatagramsAreHarmless offers as many forged datagrams as true packets arrive ten times
// over, and what no rank has sent before must not be overwritten: every chunk is placed where
// nothing that is true lies.
func TestForgedDatagramsAreHarmless(t *testing.T) {
	cfg := small(4, 16)
	cfg.Eager, cfg.Arena, cfg.EagerChunks, cfg.Window = 512, 2048, 128, 8
	f := &forger{Rand: rand.New(rand.NewPCG(1, 2)), cfg: cfg}
	for range 300 {
		o := Op{Collective: wire.Collective(1 + f.IntN(3))}
		if o.Collective != wire.Barrier {
			o.Bytes = f.IntN(400)
		}
		if o.Collective == wire.Broadcast {
			o.Root = f.IntN(cfg.Size)
		}
		f.ops = append(f.ops, o)
	}
	n := newNet(cfg)
	offered, placed := 0, 0
	n.before = func(p packet) {
		for range 10 {
			c := n.comms[p.to]
			h, size := f.next(c.Posted())
			offered++
			pl, ok := c.Place(n.now, &h, size)
			if !ok {
				continue
			}
			placed++
			require.True(t, pl.Arena)
			require.GreaterOrEqual(t, pl.Offset, c.epoch.bytes, "%+v lies where a posted operation does", h)
			c.Received(n.now, &h)
		}
	}
	for i, o := range f.ops {
		for _, r := range f.Perm(cfg.Size) {
			require.NoError(t, n.post(o, r))
			for range f.IntN(8) {
				if len(n.way) > 0 {
					n.step()
				}
			}
		}
		if i%20 == 19 {
			n.tick(2 * time.Second)
			require.True(t, n.done())
		}
	}
	assert.Greater(t, offered, 10_000)
	assert.Positive(t, placed)
	for r, c := range n.comms {
		require.NoError(t, c.Err())
		assert.Equal(t, uint64(len(f.ops)), c.Stats().Done)
		assert.Positive(t, c.Stats().Mismatched, "rank %d", r)
	}
}

// TestRandomDatagramsAreHarmless offers a million headers of random fields.
func TestRandomDatagramsAreHarmless(t *testing.T) {
	n := newNet(small(4, 16))
	op := Op{Collective: wire.Allgather, Bytes: 4000}
	require.NoError(t, n.post(op, 0, 1))
	n.run()
	r := rand.New(rand.NewPCG(3, 4))
	for range 1_000_000 {
		h := wire.Data{
			Job: job, Collective: wire.Collective(1 + r.IntN(3)), Root: uint16(r.Uint32()), Seq: r.Uint32(), PSN: r.Uint32(),
			Bytes: r.Uint32(), Arena: r.Uint32(),
		}
		_, ok := n.comms[0].Place(0, &h, r.IntN(17))
		require.False(t, ok)
	}
	require.NoError(t, n.post(op, 2, 3))
	n.tick(time.Second)
	require.True(t, n.done())
	require.NoError(t, n.comms[0].Err())
}
