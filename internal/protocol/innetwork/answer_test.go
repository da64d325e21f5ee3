package innetwork

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// stageConfig is of a node with two members, ranks 0 and 1, and 16 slots.
func stageConfig() StageConfig {
	return StageConfig{
		Terms:   Terms{Job: 9, Ranks: 2, Stripes: 1, Chunk: 64, Slots: 16, Cutoff: time.Millisecond},
		Members: 2, Owner: []int{0, 1}, Reproducible: true,
	}
}

func newStage(t *testing.T, c StageConfig) *Stage {
	t.Helper()
	c.Memory = make([]byte, MemoryFor(&c))
	s, err := NewStage(c)
	require.NoError(t, err)
	return s
}

// contribution is the header of one; if it is the owner's, it is kept.
func contribution(member, owner int, slot uint32) wire.Slot {
	h := wire.Slot{
		Kind: wire.Contribution, Type: uint8(reduce.I32), Job: 9, Member: uint16(member), Owner: uint16(owner), Slot: slot,
	}
	if member == owner {
		h.Kind = wire.Kept
	}
	return h
}

// contribute lets a member contribute to slots that an owner owns.
func contribute(s *Stage, member, owner int, slots ...uint32) {
	for _, n := range slots {
		h := contribution(member, owner, n)
		give(s, &h, make([]byte, 64))
	}
}

// give lets the member of a header contribute, or keep, what would be the payload.
func give(s *Stage, h *wire.Slot, payload []byte) {
	if h.Kind == wire.Kept {
		s.Kept(int(h.Member), h, &wire.SlotKept{Slots: 1, Bytes: uint32(len(payload))})
		return
	}
	s.Contribute(int(h.Member), h, payload)
}

// complete lets both members contribute to the slots from ... to, which an owner owns.
func complete(s *Stage, owner int, from, to uint32) {
	for n := from; n != to; n++ {
		contribute(s, 0, owner, n)
		contribute(s, 1, owner, n)
	}
}

// status lets a member say which results it holds, long after they have been sent.
func status(s *Stage, member int, st wire.SlotStatus) {
	s.Status(time.Hour, member, &wire.Slot{Kind: wire.Status, Job: 9, Member: uint16(member)}, &st)
}

// results sends all results that are due, and returns their slots.
func results(s *Stage) []uint32 {
	var slots []uint32
	for o, ok := s.Next(); ok && o.Member != Up; o, ok = s.Next() {
		slots = append(slots, o.Head.Slot)
		s.Pop(0, &o)
	}
	return slots
}

// grant is an allowance, with the slots that it names as missing.
type grant struct {
	base, limit uint32
	missing     []uint32
	owed        bool
}

// credits takes the allowances that are due, by member.
func credits(s *Stage) map[int]grant {
	due := map[int]grant{}
	for {
		member, _, c, ok := s.NextCredit()
		if !ok {
			return due
		}
		g := grant{base: c.Base, limit: c.Limit, owed: c.Owed}
		for i := range c.Missing.Len() {
			if c.Missing.Has(i) {
				g.missing = append(g.missing, c.Missing.From+uint32(i))
			}
		}
		due[member] = g
	}
}

func sequence(from, to uint32) []uint32 {
	var all []uint32
	for n := from; n != to; n++ {
		all = append(all, n)
	}
	return all
}

// TestAcknowledgedResultsAreForgotten: a result that waits to be sent again
// goes no more once it is acknowledged, and its slot is like new.
func TestAcknowledgedResultsAreForgotten(t *testing.T) {
	s := newStage(t, stageConfig())
	complete(s, 0, 0, 16)
	require.Equal(t, sequence(0, 16), results(s))
	for range 2 {
		status(s, 0, wire.SlotStatus{Have: 0, Next: 16, Poll: true})
	}
	status(s, 0, wire.SlotStatus{Have: 16, Next: 16})
	assert.Empty(t, results(s))
	assert.Zero(t, s.InUse())
	assert.Zero(t, s.results)
	complete(s, 0, 16, 32)
	assert.Equal(t, sequence(16, 32), results(s))
}

// TestAcknowledgedBehindOthers: the same if it does not come first in the queue.
func TestAcknowledgedBehindOthers(t *testing.T) {
	s := newStage(t, stageConfig())
	complete(s, 0, 0, 1)
	complete(s, 1, 1, 2)
	require.Len(t, results(s), 2)
	for _, member := range []int{1, 1, 0, 0} {
		status(s, member, wire.SlotStatus{Next: 2, Poll: true})
	}
	status(s, 0, wire.SlotStatus{Have: 1, Next: 2})
	assert.Equal(t, []uint32{1}, results(s))
}

// TestAcknowledgedBeforeOthers: the slot of an acknowledged result stays while
// an earlier one is in use; a status that was overtaken does not undo it.
func TestAcknowledgedBeforeOthers(t *testing.T) {
	s := newStage(t, stageConfig())
	complete(s, 0, 0, 1)
	complete(s, 1, 1, 2)
	require.Len(t, results(s), 2)
	for range 2 {
		status(s, 1, wire.SlotStatus{Next: 2, Poll: true})
	}
	status(s, 1, wire.SlotStatus{Have: 2, Next: 2})
	assert.Empty(t, results(s))
	assert.Equal(t, 2, s.InUse())
	status(s, 1, wire.SlotStatus{Have: 0, Next: 2})
	status(s, 0, wire.SlotStatus{Have: 2, Next: 2})
	assert.Zero(t, s.InUse())
}

// TestResultsSentAgain: at once where a later one has arrived, otherwise when
// a second poll asks; what still waits to be sent is not queued twice.
func TestResultsSentAgain(t *testing.T) {
	s := newStage(t, stageConfig())
	complete(s, 0, 0, 3)
	poll := wire.SlotStatus{Next: 3, Poll: true, Held: []byte{0b010}}
	for range 2 {
		status(s, 0, wire.SlotStatus{Next: 3, Poll: true})
	}
	require.Equal(t, []uint32{0, 1, 2}, results(s))
	_ = credits(s)
	status(s, 0, poll)
	assert.Equal(t, []uint32{0}, results(s))
	assert.True(t, credits(s)[0].owed, "2 may be under way")
	status(s, 0, poll)
	assert.Equal(t, []uint32{0, 2}, results(s))
	assert.False(t, credits(s)[0].owed, "it was sent again")
	status(s, 0, poll)
	assert.Equal(t, []uint32{0}, results(s), "asked for once since it was sent")
	status(s, 1, wire.SlotStatus{Next: 3, Poll: true})
	status(s, 1, wire.SlotStatus{Next: 3, Poll: true})
	assert.Empty(t, results(s), "they are not this member's")
	assert.EqualValues(t, 4, s.Stats().Again)
	assert.EqualValues(t, 7, s.Stats().Polls)
}

// TestMissingIsNamedOnce: an allowance names all that is missing of what gaps
// and polls asked about, nothing that is free, and nothing unasked.
func TestMissingIsNamedOnce(t *testing.T) {
	s := newStage(t, stageConfig())
	contribute(s, 0, 0, 4, 5, 6, 7)
	assert.Equal(t, map[int]grant{0: {0, 16, []uint32{0, 1, 2, 3}, false}}, credits(s), "gaps")
	contribute(s, 0, 0, 10, 12)
	status(s, 0, wire.SlotStatus{Next: 14, Poll: true})
	assert.Equal(t, map[int]grant{0: {0, 16, []uint32{0, 1, 2, 3, 8, 9, 11, 13}, false}}, credits(s),
		"a gap, and a poll that goes beyond")
	complete(s, 0, 0, 4)
	require.Len(t, results(s), 4)
	status(s, 0, wire.SlotStatus{Have: 4, Next: 14})
	assert.Equal(t, map[int]grant{0: {base: 4, limit: 20}, 1: {base: 4, limit: 20}}, credits(s), "nobody asked")
	status(s, 0, wire.SlotStatus{Have: 4, Next: 14, Poll: true})
	complete(s, 0, 4, 10)
	require.Len(t, results(s), 6)
	status(s, 0, wire.SlotStatus{Have: 10, Next: 14})
	assert.Equal(t, map[int]grant{0: {10, 26, []uint32{11, 13}, false}, 1: {base: 10, limit: 26}}, credits(s),
		"some came while the answer waited")
}

// TestGapBehindStatus: what a status says was sent is missing once something later has come.
func TestGapBehindStatus(t *testing.T) {
	s := newStage(t, stageConfig())
	contribute(s, 0, 0, 0)
	status(s, 0, wire.SlotStatus{Next: 4})
	assert.Empty(t, credits(s), "it may have overtaken them")
	contribute(s, 0, 0, 2)
	assert.Equal(t, map[int]grant{0: {0, 16, []uint32{1}, false}}, credits(s))
	contribute(s, 0, 0, 4)
	assert.Equal(t, map[int]grant{0: {0, 16, []uint32{3}, false}}, credits(s))
}

// TestPollsAreCheap: what a member is known to have contributed is not looked at again.
func TestPollsAreCheap(t *testing.T) {
	s := newStage(t, stageConfig())
	for have := range uint32(3) {
		complete(s, 0, 4*have, 4*have+4)
		require.Len(t, results(s), 4)
		status(s, 0, wire.SlotStatus{Have: 4 * have, Next: 4*have + 6, Poll: true})
		assert.Equal(t, 4*have+4, s.members[0].whole)
		status(s, 0, wire.SlotStatus{Have: 4*have + 4, Next: 4*have + 6})
	}
	status(s, 1, wire.SlotStatus{Next: 12, Poll: true})
	assert.EqualValues(t, 12, s.members[1].whole, "free slots count")
}

// TestAllowances: members hear when a quarter of the window is free, and at an operation's end.
func TestAllowances(t *testing.T) {
	s := newStage(t, stageConfig())
	complete(s, 0, 0, 5)
	for member := range 2 {
		last := contribution(member, 0, 5)
		last.Last = true
		give(s, &last, make([]byte, 64))
	}
	require.Len(t, results(s), 6)
	require.Empty(t, credits(s))
	for have, want := range []int{0, 0, 0, 0, 2, 0, 2} {
		status(s, 0, wire.SlotStatus{Have: uint32(have), Next: 6})
		assert.Len(t, credits(s), want, "have %d", have)
	}
}

// TestQueueLimit: a member may have as many slots under way as the node's queue
// for it holds, counted from what the node has read or knows to be lost.
func TestQueueLimit(t *testing.T) {
	c := stageConfig()
	c.Slots, c.Queue = 64, 16
	m := NewMember(0, 0, c.Terms)
	m.Post(0, collective.Op{Count: 64 * 16, Type: reduce.I32})
	assert.Equal(t, 16, drain(m), "before it hears anything")
	s := newStage(t, c)
	contribute(s, 0, 0, 0, 1, 2)
	assert.Empty(t, credits(s))
	contribute(s, 0, 0, 3)
	assert.Equal(t, map[int]grant{0: {limit: 20}}, credits(s))
	status(s, 0, wire.SlotStatus{Next: 10, Poll: true})
	assert.Equal(t, map[int]grant{0: {limit: 26, missing: []uint32{4, 5, 6, 7, 8, 9}}}, credits(s))
}

// TestTinyWindowIsQuiet: no allowance goes that says nothing new.
func TestTinyWindowIsQuiet(t *testing.T) {
	c := stageConfig()
	c.Slots, c.Queue = 2, 2
	s := newStage(t, c)
	contribute(s, 0, 0, 0)
	assert.Empty(t, credits(s))
	contribute(s, 1, 0, 0)
	complete(s, 1, 1, 2)
	require.Len(t, results(s), 2)
	status(s, 1, wire.SlotStatus{Have: 2, Next: 2})
	assert.Empty(t, credits(s))
}

// drain sends all that a member may send in stripe 0, and returns how many contributions that is.
func drain(m *Member) int {
	n := 0
	for r, ok := m.NextRun(0); ok; r, ok = m.NextRun(0) {
		m.Sent(0, &r, r.Count)
		n += r.Count
	}
	return n
}
