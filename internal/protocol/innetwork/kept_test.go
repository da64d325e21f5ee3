package innetwork

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// keep lets a member say that it keeps its contributions to n slots of 16 integers.
func keep(s *Stage, member, owner int, slot, n uint32, last bool) {
	h := contribution(member, owner, slot)
	h.Kind, h.Last = wire.Kept, last
	s.Kept(member, &h, &wire.SlotKept{Slots: n, Bytes: 64 * n})
}

// TestKeptRuns: what a member sends of its own shard is one datagram a run; of the others, and of
// types that are rounded, all that it has.
func TestKeptRuns(t *testing.T) {
	for _, c := range []struct {
		typ  reduce.Type
		keep bool
	}{{reduce.F32, true}, {reduce.F64, true}, {reduce.U8, true}, {reduce.F16, false}, {reduce.BF16, false},
		{reduce.E4M3, false}} {
		m := newMember(1)
		m.Post(0, collective.Op{Count: 250 / c.typ.Size(), Type: c.typ})
		kept, bytes := 0, 0
		for r, ok := m.NextRun(0); ok; r, ok = m.NextRun(0) {
			if r.Head.Kind == wire.Kept {
				h, k := r.Kept(r.Count)
				assert.Equal(t, 1, r.Owner, c.typ)
				assert.EqualValues(t, 1, h.Owner, c.typ)
				assert.True(t, h.Last, c.typ)
				assert.EqualValues(t, r.Count, k.Slots, c.typ)
				kept += int(k.Bytes)
				h, k = r.Kept(1)
				assert.Equal(t, r.Count == 1, h.Last, c.typ)
				assert.Equal(t, wire.SlotKept{Slots: 1, Bytes: uint32(min(r.Step, r.Bytes))}, k, c.typ)
			} else {
				bytes += r.Bytes
			}
			m.Sent(0, &r, r.Count)
		}
		shard := 250 / c.typ.Size() * c.typ.Size()
		if c.keep {
			assert.Equal(t, [2]int{shard, shard}, [2]int{kept, bytes}, c.typ)
		} else {
			assert.Equal(t, [2]int{0, 2 * shard}, [2]int{kept, bytes}, c.typ)
		}
	}
}

// TestOneRankKeepsNothing: nobody else would contribute.
func TestOneRankKeepsNothing(t *testing.T) {
	g := newRig(t, 1, true, 40)
	g.members[0].Post(0, collective.Op{Count: 40, Type: reduce.I32})
	for r, ok := g.members[0].NextRun(0); ok; r, ok = g.members[0].NextRun(0) {
		assert.Equal(t, wire.Contribution, r.Head.Kind)
		for i := range r.Count {
			h := r.Header(i)
			from := r.Offset + i*r.Step
			g.stage.Contribute(0, &h, g.send[0][from:min(from+r.Step, r.Offset+r.Bytes)])
		}
		g.members[0].Sent(0, &r, r.Count)
	}
	at := 0
	for o, ok := g.stage.Next(); ok; o, ok = g.stage.Next() {
		p, ok := g.members[0].Place(0, &o.Head, len(o.Payload))
		require.True(t, ok)
		assert.False(t, p.Partial)
		assert.Equal(t, g.send[0][at:at+len(o.Payload)], o.Payload)
		at += len(o.Payload)
		g.stage.Pop(0, &o)
	}
	assert.Equal(t, 160, at)
}

// TestKeptIsChecked: what no member can keep is counted and forgotten.
func TestKeptIsChecked(t *testing.T) {
	s := newStage(t, stageConfig())
	good := contribution(0, 0, 0)
	refused := 0
	refuse := func(name string, h wire.Slot, k wire.SlotKept) {
		t.Helper()
		refused++
		s.Kept(0, &h, &k)
		assert.EqualValues(t, refused, s.Stats().Malformed, name)
		assert.Zero(t, s.InUse(), name)
	}
	for name, spoil := range map[string]func(*wire.Slot){
		"kind": func(h *wire.Slot) { h.Kind = wire.Contribution }, "job": func(h *wire.Slot) { h.Job++ },
		"stripe": func(h *wire.Slot) { h.Stripe = 1 }, "member": func(h *wire.Slot) { h.Member = 1 },
		"type": func(h *wire.Slot) { h.Type = 77 }, "rounded type": func(h *wire.Slot) { h.Type = uint8(reduce.BF16) },
		"op": func(h *wire.Slot) { h.Op = 99 }, "another's": func(h *wire.Slot) { h.Owner = 1 },
		"nobody's": func(h *wire.Slot) { h.Owner = 2 }, "wide": func(h *wire.Slot) { h.Wide = true },
	} {
		h := good
		spoil(&h)
		refuse(name, h, wire.SlotKept{Slots: 2, Bytes: 128})
	}
	for _, k := range []wire.SlotKept{
		{}, {Slots: 0, Bytes: 64}, {Slots: 1, Bytes: 0}, {Slots: 1, Bytes: 65}, {Slots: 1, Bytes: 68}, {Slots: 2, Bytes: 64},
		{Slots: 2, Bytes: 126},
		{Slots: 17, Bytes: 17 * 64}, {Slots: math.MaxUint32, Bytes: math.MaxUint32}, {Slots: 1, Bytes: math.MaxUint32 - 3},
	} {
		refuse(fmt.Sprintf("%+v", k), good, k)
	}
	keep(s, 0, 0, 14, 4, false)
	assert.EqualValues(t, 2, s.Stats().Stale, "beyond the window")
	keep(s, 0, 0, 12, 4, false)
	assert.EqualValues(t, 2, s.Stats().Duplicates)
	assert.EqualValues(t, 4, s.Stats().Contributions)
	assert.Zero(t, s.Stats().SummedBytes)
	assert.EqualValues(t, refused, s.Stats().Malformed)
}

// TestKeptRunsMeetContributions: whichever comes first, each slot has its own end and length.
func TestKeptRunsMeetContributions(t *testing.T) {
	for _, first := range []bool{true, false} {
		s := newStage(t, stageConfig())
		run := func() {
			h := contribution(0, 0, 0)
			h.Last = true
			s.Kept(0, &h, &wire.SlotKept{Slots: 3, Bytes: 2*64 + 8})
		}
		if first {
			run()
		}
		for n := range uint32(3) {
			h := contribution(1, 0, n)
			size := 64
			if h.Last = n == 2; h.Last {
				size = 8
			}
			s.Contribute(1, &h, make([]byte, size))
		}
		if !first {
			run()
		}
		require.NoError(t, s.Err())
		assert.Equal(t, []uint32{0, 1, 2}, results(s))
	}
	s := newStage(t, stageConfig())
	keep(s, 0, 0, 0, 3, true)
	contribute(s, 1, 0, 0, 1)
	require.NoError(t, s.Err())
	contribute(s, 1, 0, 2) // not the last
	assert.Error(t, s.Err())
}

// TestLeafOfAnOwner: a node with the owner alone below it keeps contributions as the owner does, and has the result
// pass; the owner's contributions for others go up as always.
func TestLeafOfAnOwner(t *testing.T) {
	for _, reproducible := range []bool{true, false} {
		c := stageConfig()
		c.Ranks, c.Members, c.Owner, c.Reproducible = 3, 1, []int{-1, 0, -1}, reproducible
		c.Wide, c.Parent, c.Number = true, true, 5
		s := newStage(t, c)
		keep(s, 0, 1, 0, 2, false)
		h := contribution(0, 2, 2)
		s.Contribute(0, &h, make([]byte, 64))
		var kinds []wire.SlotKind
		for o, ok := s.Next(); ok; o, ok = s.Next() {
			require.Equal(t, Up, o.Member)
			require.EqualValues(t, 5, o.Head.Member)
			kinds = append(kinds, o.Head.Kind)
			if o.Head.Kind == wire.Kept {
				var k wire.SlotKept
				require.NoError(t, k.Get(o.Payload))
				assert.Equal(t, wire.SlotKept{Slots: 1, Bytes: 64}, k)
				assert.False(t, o.Head.Wide)
			} else {
				assert.Len(t, o.Payload, 64)
				assert.True(t, o.Head.Wide)
			}
			s.Pop(0, &o)
		}
		assert.Equal(t, []wire.SlotKind{wire.Kept, wire.Kept, wire.Contribution}, kinds)
		down := contribution(5, 1, 0)
		down.Kind = wire.Result
		for _, n := range []int{60, 68} {
			s.Result(0, &down, make([]byte, n))
		}
		assert.EqualValues(t, 2, s.Stats().Malformed, "of another length")
		s.Result(0, &down, make([]byte, 64))
		assert.EqualValues(t, 2, s.Stats().Malformed)
		assert.Equal(t, []uint32{0}, results(s))
	}
}

// TestOrderOfSums: in every mode and for every owner, ranks that round differently
// in another order get the bits of the others in rank order and their own last.
func TestOrderOfSums(t *testing.T) {
	const ranks = 4
	rng := rand.New(rand.NewPCG(4, 4))
	for _, wide := range []bool{false, true} {
		for _, reproducible := range []bool{false, true} {
			for _, op := range []reduce.Op{reduce.Sum, reduce.Avg, reduce.PremulSum, reduce.Max} {
				for owner := range ranks {
					c := stageConfig()
					c.Ranks, c.Members, c.Owner, c.Wide, c.Reproducible = ranks, ranks, []int{0, 1, 2, 3}, wide, reproducible
					s := newStage(t, c)
					srcs := make([][]byte, ranks)
					for r := range srcs {
						srcs[r] = make([]byte, 64)
						for i := range 16 {
							binary.NativeEndian.PutUint32(srcs[r][4*i:], math.Float32bits(float32(rng.NormFloat64())))
						}
						h := contribution(r, owner, 0)
						h.Type, h.Op, h.Factor = uint8(reduce.F32), uint8(op), 0.3
						give(s, &h, srcs[r])
					}
					require.NoError(t, s.Err())
					o, ok := s.Next()
					require.True(t, ok)
					require.Equal(t, owner, o.Member)
					got, want := make([]byte, 64), make([]byte, 64)
					reduce.Complete(got, o.Payload, srcs[owner], reduce.F32, op, 0.3, ranks)
					reduce.Fold(want, reduce.InOrder(srcs, owner, reduce.F32), reduce.F32, op, 0.3)
					assert.Equal(t, want, got, "%v, owner %d, wide %t, reproducible %t", op, owner, wide, reproducible)
				}
			}
		}
	}
}
