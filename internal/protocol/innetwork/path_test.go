package innetwork

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// poller is a member that polls, at a node that ends a job after a second of nothing new.
type poller struct {
	*Stage
	now    Time
	member int
	deaf   bool // answers do not come
}

func newPoller(t *testing.T, member int) *poller {
	t.Helper()
	c := stageConfig()
	c.Timeout = time.Second
	return &poller{Stage: newStage(t, c), member: member}
}

// poll polls every so often for so long, or until the job ends, and takes what the node sends.
func (a *poller) poll(st wire.SlotStatus, every, within Time) (results int, named int) {
	st.Poll, st.Heard = true, !a.deaf
	for end := a.now + within; a.now < end && a.Err() == nil; {
		a.now += every
		a.Status(a.now, a.member, &wire.Slot{Kind: wire.Status, Job: 9, Member: uint16(a.member)}, &st)
		for o, ok := a.Next(); ok; o, ok = a.Next() {
			results++
			a.Pop(a.now, &o)
		}
		for _, g := range credits(a.Stage) {
			named += len(g.missing)
		}
	}
	return results, named
}

// TestResultsThatDoNotArrive: polls pass and results do not, so the job ends, and says which way is
// broken.
func TestResultsThatDoNotArrive(t *testing.T) {
	a := newPoller(t, 0)
	complete(a.Stage, 0, 0, 5)
	a.poll(wire.SlotStatus{Next: 5}, 20*time.Millisecond, 950*time.Millisecond)
	require.NoError(t, a.Err())
	sent, _ := a.poll(wire.SlotStatus{Next: 5}, 20*time.Millisecond, time.Minute)
	var path *PathError
	require.ErrorAs(t, a.Err(), &path)
	assert.Equal(t, &PathError{Member: 0, Down: true, Bytes: 64, For: time.Second}, path)
	assert.Equal(t, "payloads of 64 bytes to member 0 have not arrived for 1s", path.Error())
	assert.Less(t, a.now, 1100*time.Millisecond)
	assert.Positive(t, sent)
}

// TestContributionsThatDoNotArrive is the same in the other direction.
func TestContributionsThatDoNotArrive(t *testing.T) {
	a := newPoller(t, 1)
	contribute(a.Stage, 1, 0, 0)
	_, named := a.poll(wire.SlotStatus{Next: 5}, 20*time.Millisecond, time.Minute)
	require.Equal(t, &PathError{Member: 1, Bytes: 64, For: time.Second}, a.Err())
	assert.Equal(t, "payloads of 64 bytes from member 1 have not arrived for 1s", a.Err().Error())
	assert.Less(t, a.now, 1100*time.Millisecond)
	assert.Less(t, named, 4*(2+int(time.Second/lastRepeat)+7), "with pauses between")
}

// TestAnswersThatDoNotArrive: it is the member who knows, and nothing can be said of data.
func TestAnswersThatDoNotArrive(t *testing.T) {
	up, down := newPoller(t, 1), newPoller(t, 0)
	up.deaf, down.deaf = true, true
	complete(down.Stage, 0, 0, 5)
	up.poll(wire.SlotStatus{Next: 5}, 20*time.Millisecond, time.Minute)
	down.poll(wire.SlotStatus{Next: 5}, 20*time.Millisecond, time.Minute)
	require.NoError(t, up.Err())
	require.NoError(t, down.Err())
}

// TestPollsSayWhetherOneWasAnswered since the one before.
func TestPollsSayWhetherOneWasAnswered(t *testing.T) {
	m := newMember(0)
	m.Post(0, four)
	drain(m)
	var heard []bool
	for i := range 4 {
		at, ok := m.Deadline()
		require.True(t, ok)
		m.Expire(at)
		_, st, ok := m.NextStatus(at, 0)
		require.True(t, ok)
		heard = append(heard, st.Heard)
		if i == 0 || i == 1 {
			h, c := grantTo(m, 0, 16)
			m.Credit(at, h, c)
		}
	}
	require.Equal(t, []bool{false, true, true, false}, heard)
}

// TestAWayThatLosesMuch: a way on which datagrams pass at times is slow, but not broken.
func TestAWayThatLosesMuch(t *testing.T) {
	up, down := newPoller(t, 1), newPoller(t, 0)
	complete(down.Stage, 0, 0, 16)
	for n := range uint32(16) {
		up.poll(wire.SlotStatus{Next: 16}, 20*time.Millisecond, 900*time.Millisecond)
		contribute(up.Stage, 1, 0, n)
		down.poll(wire.SlotStatus{Have: n, Next: 16}, 20*time.Millisecond, 900*time.Millisecond)
	}
	require.NoError(t, up.Err())
	require.NoError(t, down.Err())
}

// TestALateRankIsNoBrokenWay: a rank that has all results there are, and all its contributions at the node, may poll
// for ever while it waits for another, which has posted nothing or not all.
func TestALateRankIsNoBrokenWay(t *testing.T) {
	for posted := range uint32(3) {
		a := newPoller(t, 1)
		contribute(a.Stage, 1, 0, 0, 1, 2, 3)
		contribute(a.Stage, 0, 0, sequence(0, posted)...)
		late := *a // polls as well, for the slots that it has posted
		late.member = 0
		results(a.Stage)
		late.poll(wire.SlotStatus{Have: posted, Next: posted}, 20*time.Millisecond, time.Minute)
		a.poll(wire.SlotStatus{Have: 4, Next: 4}, 20*time.Millisecond, 10*time.Minute)
		require.NoError(t, a.Err())
	}
}

// TestAMemberThatStoodStill has not waited: a process that was stopped, or found no core.
func TestAMemberThatStoodStill(t *testing.T) {
	up, down := newPoller(t, 1), newPoller(t, 0)
	complete(down.Stage, 0, 0, 5)
	up.poll(wire.SlotStatus{Next: 5}, time.Hour, 4*time.Hour)
	down.poll(wire.SlotStatus{Next: 5}, time.Hour, 4*time.Hour)
	require.NoError(t, up.Err())
	require.NoError(t, down.Err())
	up.poll(wire.SlotStatus{Next: 5}, time.Hour, time.Hour)
	assert.Error(t, up.Err(), "but it has polled often enough now")
}

// TestRepeatsAreBounded: however often somebody polls, in the member's name or the member itself, a
// result goes again with pauses that grow, and so do requests for contributions.
func TestRepeatsAreBounded(t *testing.T) {
	for _, every := range []Time{time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
		a := newPoller(t, 0)
		complete(a.Stage, 0, 0, 4)
		sent, _ := a.poll(wire.SlotStatus{Next: 4, Held: []byte{0b1000}}, every, 900*time.Millisecond)
		require.NoError(t, a.Err())
		assert.LessOrEqual(t, sent, 3*(2+7+int(time.Second/lastRepeat))+1, "polls every %v", every)
		assert.GreaterOrEqual(t, sent, 3*(2+900/84), "polls every %v", every)
	}
}

// TestEcho: it is answered if it is of a member, and no longer than a chunk.
func TestEcho(t *testing.T) {
	s := newStage(t, stageConfig())
	good := wire.Slot{Kind: wire.Echo, Job: 9, Member: 1}
	h := good
	require.True(t, s.Echo(1, &h, 64))
	good.Slot = 64
	require.Equal(t, good, h, "the answer says to what")
	require.True(t, s.Echo(1, &h, 0))
	for _, bad := range []wire.Slot{{Kind: wire.Echo, Job: 8, Member: 1}, {Kind: wire.Echo, Job: 9},
		{Kind: wire.Status, Job: 9, Member: 1}} {
		require.False(t, s.Echo(1, &bad, 64))
	}
	require.False(t, s.Echo(1, &h, 65))
	require.EqualValues(t, 4, s.Stats().Malformed)
}
