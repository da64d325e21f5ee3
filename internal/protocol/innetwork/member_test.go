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

// four is an operation of four chunks a shard: with two ranks, slots 0 to 3 are
// rank 0's and 4 to 7 rank 1's.
var four = collective.Op{Count: 64, Type: reduce.I32}

// newMember returns rank r of two as member r+4 of a node.
func newMember(r int) *Member {
	c := stageConfig()
	c.Reorder = 300 * time.Microsecond
	return NewMember(r, r+4, c.Terms)
}

// asking lets a poll of a member go out, so that Silence tells whether
// something was taken for the node's: it returns a moment at which it is not zero.
func asking(t *testing.T, m *Member) Time {
	t.Helper()
	at, ok := m.Deadline()
	require.True(t, ok)
	m.Expire(at)
	_, st, ok := m.NextStatus(at, 0)
	require.True(t, ok)
	require.True(t, st.Poll)
	require.NotZero(t, m.Silence(at+1, time.Hour))
	return at + 1
}

// grantTo is an allowance for a member of newMember.
func grantTo(m *Member, base, limit uint32, missing ...byte) (*wire.Slot, *wire.SlotCredit) {
	return &wire.Slot{Kind: wire.Allowance, Job: 9, Member: uint16(m.number)},
		&wire.SlotCredit{Base: base, Limit: limit, Missing: wire.SlotSet{From: base, Bits: missing}}
}

// resultFor is the header of a result for a rank.
func resultFor(m *Member, slot uint32) *wire.Slot {
	p := m.find(0, slot)
	return &wire.Slot{
		Kind: wire.Result, Type: uint8(reduce.I32), Job: 9, Member: uint16(m.number), Owner: uint16(m.rank), Shape: p.shape,
		Slot: slot,
	}
}

// take lets a member receive results.
func take(t *testing.T, m *Member, now Time, slots ...uint32) {
	t.Helper()
	for _, n := range slots {
		h := resultFor(m, n)
		_, ok := m.Place(now, h, 64)
		require.True(t, ok, "slot %d", n)
		m.Received(now, h)
	}
}

// TestMemberRefusesResults: what differs in one field from a result that is due has no place.
func TestMemberRefusesResults(t *testing.T) {
	m := newMember(0)
	m.Post(0, four)
	m.Post(0, four)
	for range 2 { // one run for each owner
		r, ok := m.NextRun(0)
		require.True(t, ok)
		m.Sent(0, &r, r.Count)
	}
	now := asking(t, m)
	for name, spoil := range map[string]func(*wire.Slot) int{
		"kind":          func(h *wire.Slot) int { h.Kind = wire.Contribution; return 64 },
		"job":           func(h *wire.Slot) int { h.Job++; return 64 },
		"stripe":        func(h *wire.Slot) int { h.Stripe = 1; return 64 },
		"type":          func(h *wire.Slot) int { h.Type = uint8(reduce.F32); return 64 },
		"op":            func(h *wire.Slot) int { h.Op = uint8(reduce.Max); return 64 },
		"shape":         func(h *wire.Slot) int { h.Shape ^= 1; return 64 },
		"wide":          func(h *wire.Slot) int { h.Wide = true; return 64 },
		"owner":         func(h *wire.Slot) int { h.Owner = 1; return 64 },
		"another's":     func(h *wire.Slot) int { h.Slot = 4; return 64 },
		"short":         func(*wire.Slot) int { return 60 },
		"long":          func(*wire.Slot) int { return 68 },
		"empty":         func(*wire.Slot) int { return 0 },
		"not yet sent":  func(h *wire.Slot) int { h.Slot, h.Shape = 8, m.find(0, 8).shape; return 64 },
		"never granted": func(h *wire.Slot) int { h.Slot += 1 << 30; return 64 },
		"long gone":     func(h *wire.Slot) int { h.Slot -= 1 << 30; return 64 },
	} {
		h := resultFor(m, 0)
		n := spoil(h)
		_, ok := m.Place(now, h, n)
		assert.False(t, ok, name)
		assert.NotZero(t, m.Silence(now, time.Hour), name)
		_, _, ok = m.NextStatus(now, 0)
		assert.False(t, ok, name)
	}
	p, ok := m.Place(now, resultFor(m, 3), 64)
	require.True(t, ok)
	assert.Equal(t, Place{0, 192, 64, true}, p)
	assert.Zero(t, m.Silence(now, time.Hour), "the node lives")
	require.Equal(t, 8, drain(m))
	_, ok = m.Place(now, resultFor(m, 8), 64)
	assert.True(t, ok, "now it is sent")
}

// TestResultsTwice: a result that comes again is not taken, but acknowledged
// again unless its slot is free.
func TestResultsTwice(t *testing.T) {
	m := newMember(0)
	m.Post(0, four)
	require.Equal(t, 8, drain(m))
	take(t, m, 0, 0, 2)
	for _, n := range []uint32{0, 2} {
		_, _, _ = m.NextStatus(0, 0)
		_, ok := m.Place(0, resultFor(m, n), 64)
		assert.False(t, ok, "slot %d", n)
		_, st, ok := m.NextStatus(0, 0)
		assert.True(t, ok, "slot %d", n)
		assert.Equal(t, wire.SlotStatus{Have: 1, Next: 8, Held: []byte{0b10}}, st)
	}
	old := resultFor(m, 0)
	m.Credit(grantAt(0, m, 1, 17))
	_, ok := m.Place(0, old, 64)
	assert.False(t, ok)
	_, _, ok = m.NextStatus(0, 0)
	assert.False(t, ok, "a free slot")
}

// grantAt is grantTo with the moment before it, as Credit takes it.
func grantAt(now Time, m *Member, base, limit uint32, missing ...byte) (Time, *wire.Slot, *wire.SlotCredit) {
	h, c := grantTo(m, base, limit, missing...)
	return now, h, c
}

// TestMemberRefusesAllowances: what no node can mean is not even an answer.
func TestMemberRefusesAllowances(t *testing.T) {
	m := newMember(1)
	m.Post(0, four)
	m.Post(0, four)
	m.Post(0, four)
	r, ok := m.NextRun(0)
	require.True(t, ok)
	m.Sent(0, &r, 3)
	now := asking(t, m)
	refused := func(name string, h *wire.Slot, c *wire.SlotCredit) {
		m.Credit(now, h, c)
		assert.NotZero(t, m.Silence(now, time.Hour), name)
	}
	for name, spoil := range map[string]func(*wire.Slot, *wire.SlotCredit){
		"kind":            func(h *wire.Slot, _ *wire.SlotCredit) { h.Kind = wire.Status },
		"job":             func(h *wire.Slot, _ *wire.SlotCredit) { h.Job++ },
		"stripe":          func(h *wire.Slot, _ *wire.SlotCredit) { h.Stripe = 1 },
		"member":          func(h *wire.Slot, _ *wire.SlotCredit) { h.Member-- },
		"beyond sent":     func(_ *wire.Slot, c *wire.SlotCredit) { c.Base = 4 },
		"beyond window":   func(_ *wire.Slot, c *wire.SlotCredit) { c.Limit = 17 + c.Base },
		"nothing granted": func(_ *wire.Slot, c *wire.SlotCredit) { c.Limit = c.Base },
		"long gone":       func(_ *wire.Slot, c *wire.SlotCredit) { c.Base -= 1 << 30 },
	} {
		h, c := grantTo(m, 0, 16)
		spoil(h, c)
		refused(name, h, c)
	}
	require.Equal(t, 13, drain(m), "the window is as before")
	h, c := grantTo(m, 5, 21)
	refused("results that are not held", h, c)
	h, c = grantTo(m, 4, 20)
	m.Credit(now, h, c)
	assert.Zero(t, m.Silence(now, time.Hour))
	assert.Equal(t, 4, drain(m))
}

// TestSendsAgainWhatIsMissing: that alone, once, and nothing that is free or was never sent.
func TestSendsAgainWhatIsMissing(t *testing.T) {
	m := newMember(1)
	m.Post(0, four)
	r, ok := m.NextRun(0)
	require.True(t, ok)
	m.Sent(0, &r, 3)
	again := func() (all []uint32) {
		for r, ok := m.NextRun(0); ok && r.Again; r, ok = m.NextRun(0) {
			for i := range r.Count {
				all = append(all, r.Header(i).Slot)
			}
			m.Sent(0, &r, r.Count)
		}
		return all
	}
	m.Credit(grantAt(0, m, 0, 16, 0b1111_1111))
	assert.Equal(t, []uint32{0, 1, 2}, again())
	require.Equal(t, 5, drain(m))
	assert.Empty(t, again(), "slot 3 was not sent when it was named")
	m.Credit(grantAt(0, m, 0, 16, 0b1011_0110))
	assert.Equal(t, []uint32{1, 2, 4, 5, 7}, again())
	resent, _ := m.Resent()
	assert.EqualValues(t, 8, resent)
	m.Credit(grantAt(0, m, 0, 16, 0b0000_0111))
	m.Credit(grantAt(0, m, 2, 18))
	assert.Equal(t, []uint32{2}, again(), "the others are free")
	m.Credit(grantAt(0, m, 2, 18, 0b1))
	m.Credit(grantAt(0, m, 3, 19))
	assert.Empty(t, again())
	m.Post(0, four)
	m.Post(0, four)
	assert.Equal(t, 11, drain(m), "up to the limit, each once")
}

// TestDeadlines: polls become rarer while nothing is new, and news brings the pause back.
func TestDeadlines(t *testing.T) {
	ms := time.Millisecond
	m := newMember(1)
	m.Post(0, four)
	due := func(want Time, why string) {
		t.Helper()
		at, ok := m.Deadline()
		assert.Equal(t, want != 0, ok, why)
		if ok {
			assert.Equal(t, want, at, why)
		}
	}
	due(0, "nothing sent")
	r, _ := m.NextRun(0)
	m.Sent(0, &r, 3)
	at := ms
	for _, pause := range []Time{2, 4, 8, 16, 20, 20} {
		due(at, "first 1 ms, then doubling up to 20 ms")
		m.Expire(at - 1)
		_, _, ok := m.NextStatus(at-1, 0)
		assert.False(t, ok, "too early")
		m.Expire(at)
		_, st, ok := m.NextStatus(at, 0)
		assert.True(t, ok && st.Poll)
		_, _, ok = m.NextStatus(at, 0)
		assert.False(t, ok, "once")
		at += pause * ms
	}
	m.Credit(grantAt(60*ms, m, 0, 16, 0b1)) // 59 ms after the first poll that it may answer
	due(80*ms, "what is sent again has as long as the last pause to arrive")
	m.Credit(grantAt(70*ms, m, 2, 18))
	due(90*ms, "news, but answers are slow")
	m.Credit(grantAt(72*ms, m, 2, 17))
	due(90*ms, "nothing that was not known")
	m.Credit(grantAt(75*ms, m, 3, 18))
	due(0, "nothing is under way")
	assert.Equal(t, 5, drain(m))
	due(20*ms, "sent at 0 by this clock")
	take(t, m, 80*ms, 5)
	due(80*ms+m.terms.Reorder, "a gap")
	take(t, m, 81*ms, 4)
	due(101*ms, "none")
}

// TestDeadlineMeasures: the pause follows how long answers take, and only allowances that answer count.
func TestDeadlineMeasures(t *testing.T) {
	ms := time.Millisecond
	m := newMember(1)
	m.terms.Reorder = 50 * ms
	m.Post(0, four)
	require.Equal(t, 8, drain(m))
	m.Expire(ms)
	_, _, ok := m.NextStatus(ms, 0)
	require.True(t, ok)
	m.Credit(grantAt(4*ms, m, 1, 17)) // 3 ms after the poll
	at, _ := m.Deadline()
	assert.Equal(t, 10*ms, at)
	m.Credit(grantAt(300*ms, m, 2, 18))
	at, _ = m.Deadline()
	assert.Equal(t, 306*ms, at)
	m.Credit(grantAt(310*ms, m, 2, 18, 0b1))
	take(t, m, 311*ms, 5)
	at, _ = m.Deadline()
	assert.Equal(t, 317*ms, at, "a gap does not put the poll off")
}

// TestOwed: who is owed results polls at once, but once for each poll of a timer, however
// many copies of the answer come; another answer does not call a poll off.
func TestOwed(t *testing.T) {
	m := newMember(1)
	m.Post(0, four)
	require.Equal(t, 8, drain(m))
	h, c := grantTo(m, 0, 16)
	c.Owed = true
	for range 3 {
		now := asking(t, m)
		m.Credit(now, h, c)
		_, st, ok := m.NextStatus(now, 0)
		assert.True(t, ok && st.Poll)
		for range 3 {
			m.Credit(now, h, c)
			_, _, ok = m.NextStatus(now, 0)
			assert.False(t, ok, "once")
		}
	}
	_, polls := m.Resent()
	assert.EqualValues(t, 6, polls)
	m.Expire(time.Second)
	m.Credit(grantAt(time.Second, m, 0, 16))
	_, st, ok := m.NextStatus(time.Second, 0)
	assert.True(t, ok && st.Poll)
}

// TestGapsWaitForAnAnswer: results behind a gap call for one poll, and for another only once the
// first is answered.
func TestGapsWaitForAnAnswer(t *testing.T) {
	m := newMember(1)
	m.terms.Reorder = 0
	m.Post(0, four)
	m.Post(0, four)
	require.Equal(t, 16, drain(m))
	polled := func(now Time) bool {
		m.Expire(now)
		_, st, ok := m.NextStatus(now, 0)
		return ok && st.Poll
	}
	take(t, m, 10, 5)
	assert.True(t, polled(10), "slot 4 is missing")
	for i, slot := range []uint32{6, 7, 12} {
		now := Time(20 + i)
		take(t, m, now, slot)
		assert.False(t, polled(now), "the answer is on its way")
	}
	m.Credit(grantAt(30, m, 0, 16))
	assert.False(t, polled(30))
	take(t, m, 40, 13)
	assert.True(t, polled(40), "slot 4 is still missing")
	at, ok := m.Deadline()
	require.True(t, ok)
	assert.True(t, polled(at), "an answer that is lost keeps nobody waiting")
}

// TestGrantIsNews: more room alone is as good as slots that are free.
func TestGrantIsNews(t *testing.T) {
	c := stageConfig()
	c.Queue = 4
	m := NewMember(1, 5, c.Terms)
	m.Post(0, four)
	require.Equal(t, 4, drain(m))
	m.Credit(grantAt(500*time.Microsecond, m, 0, 6))
	at, _ := m.Deadline()
	assert.Equal(t, 1500*time.Microsecond, at)
}

// TestSendsAgainAWindow: a run of slots to be sent again ends where nothing was sent yet.
func TestSendsAgainAWindow(t *testing.T) {
	m := newMember(1)
	m.Post(0, collective.Op{Count: 16 * 20, Type: reduce.I32})
	require.Equal(t, 16, drain(m))
	m.Credit(grantAt(0, m, 0, 16, 0xff, 0xff))
	r, ok := m.NextRun(0)
	require.True(t, ok)
	assert.Equal(t, 16, r.Count)
}

// TestStripesApart: every stripe has its own timers, silence and shifts of the layout.
func TestStripesApart(t *testing.T) {
	c := stageConfig()
	c.Stripes = 2
	m := NewMember(0, 0, c.Terms)
	m.Post(0, four)
	m.Post(0, four) // one row, so it goes to the next stripe
	send := func(stripe, want int, now Time) {
		n := 0
		for r, ok := m.NextRun(stripe); ok; r, ok = m.NextRun(stripe) {
			assert.EqualValues(t, stripe, r.Seq, "operations take turns")
			m.Sent(now, &r, r.Count)
			n += r.Count
		}
		assert.Equal(t, want, n)
	}
	send(0, 8, time.Second)
	send(1, 8, 0)
	at, ok := m.Deadline()
	require.True(t, ok)
	assert.Equal(t, time.Millisecond, at, "the sooner one")
	m.Expire(at)
	_, _, ok = m.NextStatus(at, 0)
	assert.False(t, ok)
	_, _, ok = m.NextStatus(at, 1)
	assert.True(t, ok)
	assert.Equal(t, time.Second, m.Silence(at+time.Second, time.Hour), "the longer one")
}

// TestExpect: the next result is expected where Place will put it, past the results that are held.
func TestExpect(t *testing.T) {
	m := newMember(1)
	m.Post(0, four)
	_, ok := m.Expect(0)
	assert.False(t, ok, "nothing is sent")
	require.Equal(t, 8, drain(m))
	next := func(offset int) {
		t.Helper()
		p, ok := m.Expect(0)
		assert.True(t, ok)
		assert.Equal(t, Place{0, offset, 64, true}, p)
	}
	next(0)
	take(t, m, 0, 4, 6)
	next(64)
	take(t, m, 0, 5)
	next(192)
	take(t, m, 0, 7)
	_, ok = m.Expect(0)
	assert.False(t, ok, "all are held")
	m.Post(0, four)
	_, ok = m.Expect(0)
	assert.False(t, ok, "the next is not sent")
	require.Equal(t, 8, drain(m))
	p, ok := m.Expect(0)
	assert.True(t, ok)
	assert.Equal(t, Place{1, 0, 64, true}, p)
}

// TestHeld names the bytes that are there, those beyond a gap as well.
func TestHeld(t *testing.T) {
	m := newMember(1)
	m.Post(0, four)
	require.Equal(t, 8, drain(m))
	assert.Empty(t, m.Held(0))
	take(t, m, 0, 5)
	assert.Equal(t, []collective.Range{{From: 64, To: 128}}, m.Held(0))
	take(t, m, 0, 4, 7)
	assert.Equal(t, []collective.Range{{From: 0, To: 128}, {From: 192, To: 256}}, m.Held(0))
	take(t, m, 0, 6)
	assert.Equal(t, []collective.Range{{From: 0, To: 256}}, m.Held(0))
	assert.Empty(t, m.Held(1))
}

// TestOldestInItsStripes: an operation that lies in one stripe does not look at others.
func TestOldestInItsStripes(t *testing.T) {
	c := stageConfig()
	c.Stripes = 2
	m := NewMember(1, 5, c.Terms)
	m.Post(0, four)
	m.Post(0, four)
	assert.Equal(t, collective.Progress{Sending: true}, m.Oldest())
	for r, ok := m.NextRun(1); ok; r, ok = m.NextRun(1) {
		m.Sent(0, &r, r.Count)
	}
	h := resultFor(m, 5)
	h.Stripe, h.Shape = 1, m.find(1, 5).shape
	_, ok := m.Place(0, h, 64)
	require.True(t, ok)
	m.Received(0, h)
	assert.Equal(t, collective.Progress{Sending: true}, m.Oldest(), "that was the next one's")
}

// TestOldest says what the oldest operation waits for.
func TestOldest(t *testing.T) {
	m := newMember(1)
	check := func(moving, whole, sending bool) {
		t.Helper()
		assert.Equal(t, collective.Progress{Moving: moving, Whole: whole, Sending: sending}, m.Oldest())
	}
	check(false, false, false)
	m.Post(0, four)
	check(false, false, true)
	require.Equal(t, 8, drain(m))
	check(false, false, false)
	take(t, m, 0, 5)
	check(true, false, false)
	take(t, m, 0, 4, 6, 7)
	check(true, true, false)
	m.Credit(grantAt(0, m, 8, 24))
	check(true, true, false)
	_, ok := m.NextDone()
	require.True(t, ok)
	check(false, false, false)
}
