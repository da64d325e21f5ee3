package innetwork

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// rig is a node and its members, without a network between them.
type rig struct {
	terms   Terms
	stage   *Stage
	members []*Member
	send    [][]byte
	recv    [][]byte
	now     Time
}

func newRig(t testing.TB, ranks int, reproducible bool, count int) *rig {
	t.Helper()
	g := &rig{
		terms: Terms{
			Job: 9, Ranks: ranks, Stripes: 1, Chunk: 64, Slots: 8, First: math.MaxUint32 - 3, Cutoff: time.Millisecond,
		},
	}
	c := StageConfig{Terms: g.terms, Members: ranks, Owner: make([]int, ranks), Reproducible: reproducible}
	for r := range ranks {
		c.Owner[r] = r
		g.members = append(g.members, NewMember(r, r, g.terms))
		g.send = append(g.send, make([]byte, 4*count*ranks))
		g.recv = append(g.recv, make([]byte, 4*count))
		for i := range count * ranks {
			binary.NativeEndian.PutUint32(g.send[r][4*i:], uint32(i*(r+1)))
		}
	}
	c.Memory = make([]byte, MemoryFor(&c))
	var err error
	g.stage, err = NewStage(c)
	require.NoError(t, err)
	return g
}

// exchange carries everything between members and node once, and reports whether that was anything.
func (g *rig) exchange(count int) bool {
	busy := false
	for r, m := range g.members {
		for run, ok := m.NextRun(0); ok; run, ok = m.NextRun(0) {
			if run.Head.Kind == wire.Kept {
				h, k := run.Kept(run.Count)
				g.stage.Kept(r, &h, &k)
				m.Sent(g.now, &run, run.Count)
				busy = true
				continue
			}
			for i := range run.Count {
				h := run.Header(i)
				from := 4*count*run.Owner + run.Offset + i*run.Step
				g.stage.Contribute(r, &h, g.send[r][from:min(from+run.Step, 4*count*run.Owner+run.Offset+run.Bytes)])
			}
			m.Sent(g.now, &run, run.Count)
			busy = true
		}
	}
	for o, ok := g.stage.Next(); ok; o, ok = g.stage.Next() {
		m := g.members[o.Member]
		if p, ok := m.Place(g.now, &o.Head, len(o.Payload)); ok {
			at := g.recv[o.Member][p.Offset:][:p.Bytes]
			own := g.send[o.Member][4*count*o.Member+p.Offset:][:p.Bytes]
			reduce.Complete(at, o.Payload, own, reduce.Type(o.Head.Type), reduce.Op(o.Head.Op), o.Head.Factor, len(g.members))
			m.Received(g.now, &o.Head)
		}
		g.stage.Pop(g.now, &o)
		busy = true
	}
	for r, m := range g.members {
		if h, st, ok := m.NextStatus(g.now, 0); ok {
			g.stage.Status(g.now, r, &h, &st)
			busy = true
		}
	}
	for {
		to, h, c, ok := g.stage.NextCredit()
		if !ok {
			return busy
		}
		g.members[to].Credit(g.now, &h, &c)
		busy = true
	}
}

// TestNoAllocation: once it runs, nothing in the protocol allocates.
func TestNoAllocation(t *testing.T) {
	const count = 500
	g := newRig(t, 3, true, count)
	once := func() {
		for _, m := range g.members {
			m.Post(g.now, collective.Op{Count: count, Type: reduce.I32})
		}
		for g.exchange(count) {
		}
		for r, m := range g.members {
			if _, ok := m.NextDone(); !ok {
				t.Fatalf("rank %d is not done", r)
			}
		}
	}
	once()
	assert.Zero(t, testing.AllocsPerRun(20, once))
	for r := range g.members {
		for i := range count {
			assert.Equal(t, uint32(6*(r*count+i)), binary.NativeEndian.Uint32(g.recv[r][4*i:]))
		}
	}
	assert.Zero(t, g.stage.InUse())
	s := g.stage.Stats()
	assert.Zero(t, s.Duplicates+s.Stale+s.Malformed+s.Again+s.Gaps)
}

// TestGarbageChangesNothing: what no member of the job can mean is counted and forgotten.
func TestGarbageChangesNothing(t *testing.T) {
	const count = 16
	g := newRig(t, 2, true, count)
	for _, m := range g.members {
		m.Post(0, collective.Op{Count: count, Type: reduce.I32})
	}
	run, ok := g.members[1].NextRun(0)
	require.True(t, ok)
	good, payload := run.Header(0), g.send[1][:64]
	spoils := []func(*wire.Slot){
		func(h *wire.Slot) { h.Kind = wire.Result }, func(h *wire.Slot) { h.Job++ }, func(h *wire.Slot) { h.Stripe = 1 },
		func(h *wire.Slot) { h.Member = 0 }, func(h *wire.Slot) { h.Type = 77 }, func(h *wire.Slot) { h.Op = 99 },
		func(h *wire.Slot) { h.Owner = 2 }, func(h *wire.Slot) { h.Wide = true },
		func(h *wire.Slot) { h.Owner = 1 }, // what an owner keeps
	}
	for i, spoil := range spoils {
		h := good
		spoil(&h)
		g.stage.Contribute(1, &h, payload)
		assert.EqualValues(t, i+1, g.stage.Stats().Malformed)
	}
	for i, n := range []int{0, 3, 68} {
		g.stage.Contribute(1, &good, make([]byte, n))
		assert.EqualValues(t, len(spoils)+i+1, g.stage.Stats().Malformed)
	}
	for _, slot := range []uint32{good.Slot - 1, good.Slot + 8, good.Slot + 1<<31} {
		h := good
		h.Slot = slot
		g.stage.Contribute(1, &h, payload)
	}
	assert.EqualValues(t, 3, g.stage.Stats().Stale)
	assert.Zero(t, g.stage.InUse())
	// A status that promises results of slots never granted, and one of another job.
	g.stage.Status(0, 0, &wire.Slot{Kind: wire.Status, Job: 9}, &wire.SlotStatus{Have: good.Slot, Next: good.Slot + 9})
	g.stage.Status(0, 0, &wire.Slot{Kind: wire.Status, Job: 8}, &wire.SlotStatus{Have: good.Slot + 1, Next: good.Slot + 1})
	assert.EqualValues(t, len(spoils)+5, g.stage.Stats().Malformed)
	for g.exchange(count) {
	}
	for r, m := range g.members {
		_, ok := m.NextDone()
		assert.True(t, ok, r)
		assert.Equal(t, uint32(3*r*count), binary.NativeEndian.Uint32(g.recv[r]))
	}
}

// TestMismatch: members that call different things are told who and what; then nothing changes any more.
func TestMismatch(t *testing.T) {
	for name, spoil := range map[string]func(*wire.Slot){
		"type":                     func(h *wire.Slot) { h.Type = uint8(reduce.F32) },
		"type that no owner keeps": func(h *wire.Slot) { h.Type = uint8(reduce.BF16) },
		"op":                       func(h *wire.Slot) { h.Op = uint8(reduce.Max) },
		"owner":                    func(h *wire.Slot) { h.Owner, h.Kind = 1, wire.Kept },
		"last":                     func(h *wire.Slot) { h.Last = true },
		"shape":                    func(h *wire.Slot) { h.Shape++ }, "factor": func(h *wire.Slot) { h.Factor = 2 },
		"factor that is no number": func(h *wire.Slot) { h.Factor = math.NaN() }, "elements": nil,
	} {
		s := newStage(t, stageConfig())
		contribute(s, 0, 0, 3)
		h, n := contribution(1, 0, 3), 64
		if spoil != nil {
			spoil(&h)
		} else {
			n = 60
		}
		give(s, &h, make([]byte, n))
		var m *MemberMismatchError
		require.ErrorAs(t, s.Err(), &m, name)
		assert.Equal(t, [2]int{0, 1}, m.Members)
		if name != "last" {
			assert.NotEqual(t, m.What[0], m.What[1], name)
		}
		assert.Contains(t, m.Error(), "member 1")
		before := s.Stats()
		contribute(s, 1, 0, 3, 4)
		contribute(s, 0, 0, 15)
		assert.Equal(t, before, s.Stats(), name)
		assert.Equal(t, 4, s.InUse(), name)
		assert.Empty(t, results(s), name)
	}
}

// TestNoMismatch: factors are of premultiplied sums alone, and NaN is the same everywhere.
func TestNoMismatch(t *testing.T) {
	for name, ops := range map[string][2]collective.Op{
		"unused factor": {{Count: 16, Type: reduce.I32, Factor: 2}, {Count: 16, Type: reduce.I32, Factor: 3}},
		"NaN": {
			{Count: 16, Type: reduce.F32, Reduction: reduce.PremulSum, Factor: math.NaN()},
			{Count: 16, Type: reduce.F32, Reduction: reduce.PremulSum, Factor: -math.NaN()},
		},
	} {
		g := newRig(t, 2, true, 16)
		for r, m := range g.members {
			m.Post(0, ops[r])
		}
		for g.exchange(16) {
		}
		require.NoError(t, g.stage.Err(), name)
		assert.EqualValues(t, 2, g.stage.Stats().Slots, name)
	}
}

// TestSilence: a member knows for how long nobody answers.
func TestSilence(t *testing.T) {
	g := newRig(t, 2, true, 16)
	m := g.members[0]
	assert.Zero(t, m.Silence(time.Hour, time.Hour))
	m.Post(0, collective.Op{Count: 16, Type: reduce.I32})
	run, _ := m.NextRun(0)
	m.Sent(0, &run, run.Count)
	at, ok := m.Deadline()
	require.True(t, ok)
	m.Expire(at)
	h, st, ok := m.NextStatus(at, 0)
	require.True(t, ok)
	assert.True(t, st.Poll)
	assert.Equal(t, time.Second, m.Silence(at+time.Second, time.Hour))
	assert.Equal(t, time.Second+time.Minute, m.Silence(at+time.Hour, 4*time.Minute), "it stood still for an hour")
	g.stage.Status(0, 0, &h, &st)
	_, h, c, ok := g.stage.NextCredit()
	require.True(t, ok)
	m.Credit(at+time.Second, &h, &c)
	assert.Zero(t, m.Silence(at+2*time.Second, time.Hour))
	_, again := m.NextRun(0)
	assert.True(t, again, "the answer names what was lost")
}

// TestNewStageRefuses: what parents and members ask for is checked.
func TestNewStageRefuses(t *testing.T) {
	node := stageConfig()
	node.Ranks, node.Owner, node.Wide, node.Parent = 3, []int{0, -1, 1}, true, true
	newStage(t, node) // fits
	for name, spoil := range map[string]func(*StageConfig){
		"terms":                       func(c *StageConfig) { c.Slots = 3 },
		"stripe":                      func(c *StageConfig) { c.Stripe = 1 },
		"negative stripe":             func(c *StageConfig) { c.Stripe = -1 },
		"no members":                  func(c *StageConfig) { c.Members, c.Owner = 0, []int{-1, -1, -1} },
		"more members than ranks":     func(c *StageConfig) { c.Members = 4 },
		"owners":                      func(c *StageConfig) { c.Owner = c.Owner[:2] },
		"owner that is no member":     func(c *StageConfig) { c.Owner = []int{0, 1, 2} },
		"owner before all members":    func(c *StageConfig) { c.Owner = []int{0, 1, -2} },
		"owner elsewhere at the root": func(c *StageConfig) { c.Parent = false },
		"narrow slots below another":  func(c *StageConfig) { c.Wide = false },
		"no timers below another":     func(c *StageConfig) { c.Cutoff = 0 },
	} {
		c := node
		c.Memory = make([]byte, 1<<16)
		spoil(&c)
		_, err := NewStage(c)
		assert.Error(t, err, name)
		assert.NotErrorIs(t, err, errNoMemory, name)
	}
	node.Memory = make([]byte, MemoryFor(&node)-1)
	_, err := NewStage(node)
	assert.ErrorIs(t, err, errNoMemory)
}

// TestManyMembers: more than a word has bits.
func TestManyMembers(t *testing.T) {
	c := stageConfig()
	c.Members, c.Ranks, c.Owner = 65, 65, make([]int, 65)
	for r := range c.Owner {
		c.Owner[r] = r
	}
	s := newStage(t, c)
	for n := range uint32(16) {
		for member := 64; member >= 0; member-- {
			assert.Empty(t, results(s))
			contribute(s, member, 0, n)
		}
		assert.Equal(t, []uint32{n}, results(s))
	}
	assert.Zero(t, s.Stats().Duplicates)
}

// TestStageExpect: a contribution may be received where it will lie, and what
// does not come there changes nothing.
func TestStageExpect(t *testing.T) {
	s := newStage(t, stageConfig())
	for n := range uint32(16) {
		to := s.Expect(1)
		require.Len(t, to, 64)
		assert.Same(t, &s.area(int(n), 1)[0], &to[0])
		contribute(s, 1, 0, n)
	}
	assert.Nil(t, s.Expect(1), "the window is full")
	assert.NotNil(t, s.Expect(0))
	c := stageConfig()
	c.Reproducible = false
	assert.Nil(t, newStage(t, c).Expect(0), "it is added to others")
	c.Reproducible, c.Wide = true, true
	assert.Nil(t, newStage(t, c).Expect(0), "it is widened")
}

// TestSlotsHoldPartialResults: chunks of 8-bit floats are half as long, since
// a slot has room for a partial result twice as long as a chunk.
func TestSlotsHoldPartialResults(t *testing.T) {
	c := stageConfig()
	c.Reproducible = false
	require.Equal(t, 32, c.chunkElements(reduce.E4M3))
	require.Equal(t, 32, c.chunkElements(reduce.BF16))
	require.Equal(t, 64, c.chunkElements(reduce.U8))
	s := newStage(t, c)
	h := contribution(0, 1, 0)
	h.Type = uint8(reduce.E4M3)
	s.Contribute(0, &h, make([]byte, 64))
	assert.EqualValues(t, 1, s.Stats().Malformed)
	s.Contribute(0, &h, make([]byte, 32))
	assert.EqualValues(t, 1, s.Stats().Malformed)
	assert.Equal(t, 1, s.InUse())
}
