package innetwork

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// newNode returns a node that is member 5 of its parent: ranks 0 and 1 are
// reached through it, rank 2 is not.
func newNode(t *testing.T) *Stage {
	t.Helper()
	c := stageConfig()
	c.Ranks, c.Owner = 3, []int{0, 1, -1}
	c.Wide, c.Parent, c.Number, c.Reorder = true, true, 5, 300*time.Microsecond
	return newStage(t, c)
}

// halves is the header of a contribution of halves, which lie as singles in wide slots.
func halves(member, owner int, slot uint32) wire.Slot {
	h := contribution(member, owner, slot)
	h.Kind, h.Type = wire.Contribution, uint8(reduce.BF16) // nobody keeps it
	return h
}

// gather lets both members contribute 16 halves for each owner, to slots from one on.
func gather(s *Stage, from uint32, owners ...int) {
	for i, owner := range owners {
		for member := range 2 {
			h := halves(member, owner, from+uint32(i))
			s.Contribute(member, &h, make([]byte, 32))
		}
	}
}

// climb sends contributions that are due up, at most n, and returns their slots.
func climb(t *testing.T, s *Stage, now Time, n int) []uint32 {
	t.Helper()
	var slots []uint32
	for o, ok := s.Next(); ok && n > 0; o, ok = s.Next() {
		require.Equal(t, Up, o.Member, "a result of slot %d", o.Head.Slot)
		require.True(t, o.Head.Wide)
		require.EqualValues(t, 5, o.Head.Member)
		require.Len(t, o.Payload, 64)
		slots = append(slots, o.Head.Slot)
		s.Pop(now, &o)
		n--
	}
	return slots
}

// resultOf is the header of the parent's result.
func resultOf(owner int, slot uint32) wire.Slot {
	h := halves(5, owner, slot)
	h.Kind = wire.Result
	return h
}

// descend lets the parent send results that an owner owns.
func descend(s *Stage, now Time, owner int, slots ...uint32) {
	for _, n := range slots {
		h := resultOf(owner, n)
		s.Result(now, &h, make([]byte, 32))
	}
}

// allow lets the parent send an allowance.
func allow(s *Stage, now Time, base, limit uint32, missing ...byte) {
	s.Credit(now, &wire.Slot{Kind: wire.Allowance, Job: 9, Member: 5},
		&wire.SlotCredit{Base: base, Limit: limit, Missing: wire.SlotSet{From: base, Bits: missing}})
}

// report returns the status for the parent, if one is due.
func report(s *Stage, now Time) *wire.SlotStatus {
	h, st, ok := s.NextStatus(now)
	if !ok || h.Kind != wire.Status || h.Job != 9 || h.Member != 5 {
		return nil
	}
	return &st
}

// TestNodeRefusesResults: what differs in one field from a result that is due is counted and
// forgotten.
func TestNodeRefusesResults(t *testing.T) {
	s := newNode(t)
	gather(s, 0, 0, 2, 1, 0)
	refused := uint64(0)
	refuse := func(name string, h wire.Slot, n int) {
		t.Helper()
		refused++
		s.Result(0, &h, make([]byte, n))
		assert.Equal(t, refused, s.Stats().Malformed, name)
		assert.Nil(t, report(s, 0), name)
	}
	refuse("not yet sent", resultOf(0, 0), 32)
	require.Equal(t, []uint32{0, 1, 2}, climb(t, s, 0, 3))
	for name, spoil := range map[string]func(*wire.Slot){
		"kind":          func(h *wire.Slot) { h.Kind = wire.Contribution },
		"job":           func(h *wire.Slot) { h.Job++ },
		"stripe":        func(h *wire.Slot) { h.Stripe = 1 },
		"member":        func(h *wire.Slot) { h.Member = 0 },
		"type":          func(h *wire.Slot) { h.Type = uint8(reduce.F16) },
		"op":            func(h *wire.Slot) { h.Op = uint8(reduce.Max) },
		"owner":         func(h *wire.Slot) { h.Owner = 1 },
		"shape":         func(h *wire.Slot) { h.Shape = 1 },
		"last":          func(h *wire.Slot) { h.Last = true },
		"factor":        func(h *wire.Slot) { h.Factor = 2 },
		"next":          func(h *wire.Slot) { h.Slot = 3 },
		"never granted": func(h *wire.Slot) { h.Slot += 1 << 30 },
		"long gone":     func(h *wire.Slot) { h.Slot -= 1 << 30 },
		"window before": func(h *wire.Slot) { h.Slot -= 16 },
	} {
		h := resultOf(0, 0)
		spoil(&h)
		refuse(name, h, 32)
	}
	refuse("short", resultOf(0, 0), 30)
	refuse("long", resultOf(0, 0), 34)
	refuse("of nobody here", resultOf(2, 1), 32)
	descend(s, 0, 0, 0)
	assert.Equal(t, refused, s.Stats().Malformed)
	assert.NotNil(t, report(s, 0))
	assert.Equal(t, []uint32{0}, results(s))
}

// TestNodeRefusesAllowances: the same for what the parent grants.
func TestNodeRefusesAllowances(t *testing.T) {
	s := newNode(t)
	gather(s, 0, 0, 1)
	require.Len(t, climb(t, s, 0, 2), 2)
	refused := uint64(0)
	for name, spoil := range map[string]func(*wire.Slot, *wire.SlotCredit){
		"kind":                      func(h *wire.Slot, _ *wire.SlotCredit) { h.Kind = wire.Result },
		"job":                       func(h *wire.Slot, _ *wire.SlotCredit) { h.Job++ },
		"stripe":                    func(h *wire.Slot, _ *wire.SlotCredit) { h.Stripe = 1 },
		"member":                    func(h *wire.Slot, _ *wire.SlotCredit) { h.Member = 0 },
		"results that are not held": func(_ *wire.Slot, c *wire.SlotCredit) { c.Base = 1 },
	} {
		h, c := wire.Slot{Kind: wire.Allowance, Job: 9, Member: 5},
			wire.SlotCredit{Limit: 16, Missing: wire.SlotSet{Bits: []byte{1}}}
		spoil(&h, &c)
		s.Credit(0, &h, &c)
		refused++
		assert.Equal(t, refused, s.Stats().Malformed, name)
		assert.Empty(t, climb(t, s, 0, 1), name)
	}
	allow(s, 0, 0, 16, 1)
	assert.Equal(t, []uint32{0}, climb(t, s, 0, 1))
	assert.Equal(t, 2, s.InUse())
}

// TestNodeTakesResultsOnce: one that comes again is acknowledged again, and does not go down again.
func TestNodeTakesResultsOnce(t *testing.T) {
	s := newNode(t)
	gather(s, 0, 0, 1)
	require.Len(t, climb(t, s, 0, 2), 2)
	descend(s, 0, 1, 1)
	assert.Equal(t, &wire.SlotStatus{Next: 2, Held: []byte{0b10}}, report(s, 0))
	assert.Nil(t, report(s, 0), "said once")
	assert.Equal(t, []uint32{1}, results(s))
	descend(s, 0, 1, 1)
	assert.EqualValues(t, 1, s.Stats().Duplicates)
	assert.Equal(t, &wire.SlotStatus{Next: 2, Held: []byte{0b10}}, report(s, 0))
	assert.Empty(t, results(s))
}

// TestNodeKeepsResults: where a result lies there is no partial result to send again any more.
func TestNodeKeepsResults(t *testing.T) {
	s := newNode(t)
	gather(s, 0, 0, 1, 0)
	require.Len(t, climb(t, s, 0, 3), 3)
	allow(s, 0, 0, 16, 0b001)
	descend(s, 0, 0, 0)
	require.Equal(t, []uint32{0}, results(s))
	assert.Empty(t, climb(t, s, 0, 3), "the result came after the allowance")
	descend(s, 0, 0, 2)
	require.Equal(t, []uint32{2}, results(s))
	allow(s, 0, 0, 16, 0b101)
	assert.Empty(t, climb(t, s, 0, 3), "and before")
	allow(s, 0, 0, 16, 0b111)
	assert.Equal(t, []uint32{1}, climb(t, s, 0, 3))
}

// TestNodePassesOthers: slots that nobody below owns need no result, once they are sent up.
func TestNodePassesOthers(t *testing.T) {
	s := newNode(t)
	gather(s, 0, 2, 2, 2)
	require.Equal(t, []uint32{0}, climb(t, s, 0, 1))
	s.Expire(time.Millisecond)
	st := report(s, time.Millisecond)
	assert.Equal(t, &wire.SlotStatus{Have: 1, Next: 1, Poll: true, Held: []byte{}}, st,
		"the others are complete, but not sent")
	require.Equal(t, []uint32{1, 2}, climb(t, s, 0, 3))
	allow(s, 0, 3, 19)
	assert.Zero(t, s.Stats().Malformed)
	assert.Zero(t, s.InUse())
}

// TestNodeFreesWithItsParent: a slot is in use until the parent's base has passed it.
func TestNodeFreesWithItsParent(t *testing.T) {
	s := newNode(t)
	gather(s, 0, 0, 0, 0, 0)
	require.Len(t, climb(t, s, 0, 4), 4)
	descend(s, 0, 0, 0, 1, 2, 3)
	allow(s, 0, 1, 17)
	assert.EqualValues(t, 1, s.Stats().Malformed, "nobody has acknowledged it")
	require.Len(t, results(s), 4)
	status(s, 0, wire.SlotStatus{Have: 4, Next: 4})
	assert.Equal(t, 4, s.InUse())
	assert.Equal(t, &wire.SlotStatus{Have: 4, Next: 4, Held: []byte{}}, report(s, 0), "without results beyond")
	allow(s, 0, 4, 20)
	assert.Zero(t, s.InUse())
	assert.Equal(t, map[int]grant{0: {base: 4, limit: 20}, 1: {base: 4, limit: 20}}, credits(s))
}

// TestNodeDeadlines: a node asks its parent as a member does.
func TestNodeDeadlines(t *testing.T) {
	ms := time.Millisecond
	s := newNode(t)
	due := func(want Time) {
		t.Helper()
		at, ok := s.Deadline()
		assert.True(t, ok)
		assert.Equal(t, want, at)
	}
	gather(s, 0, 0, 2, 0, 1)
	require.Len(t, climb(t, s, 0, 4), 4)
	due(ms)
	s.Expire(ms)
	require.True(t, report(s, ms).Poll)
	assert.Equal(t, ms, s.Silence(2*ms, time.Hour))
	descend(s, 2*ms, 0, 0)
	assert.Zero(t, s.Silence(5*ms, time.Hour))
	due(3 * ms)
	allow(s, 2*ms, 0, 16) // 1 ms after the poll
	descend(s, 4*ms, 1, 3)
	due(4*ms + s.cfg.Reorder) // a gap: slot 2
	descend(s, 5*ms, 0, 2)
	due(7 * ms)
	others := newNode(t)
	gather(others, 0, 2, 2, 2)
	require.Len(t, climb(t, others, 0, 3), 3)
	allow(others, 0, 3, 19)
	gather(others, 3, 0)
	require.Len(t, climb(t, others, 7*ms, 1), 1)
	descend(others, 8*ms, 0, 3)
	at, _ := others.Deadline()
	assert.Equal(t, 9*ms, at, "what is free is not waited for")
	root := newStage(t, stageConfig())
	_, ok := root.Deadline()
	assert.False(t, ok, "only a node with a parent has timers")
	root.Expire(time.Hour)
	assert.Zero(t, root.Silence(time.Hour, time.Hour))
}

// TestWideSlotsHoldAccumulators: halves take twice their size there.
func TestWideSlotsHoldAccumulators(t *testing.T) {
	s := newNode(t)
	h := halves(0, 0, 0)
	s.Contribute(0, &h, make([]byte, 64))
	assert.EqualValues(t, 1, s.Stats().Malformed)
	h.Wide = true
	s.Contribute(0, &h, make([]byte, 64))
	assert.EqualValues(t, 1, s.Stats().Malformed)
	assert.Equal(t, 1, s.InUse())
}
