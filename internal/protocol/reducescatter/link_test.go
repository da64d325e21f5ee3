package reducescatter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
)

// TestContributionsWaitForWhatIsMulticast: while chunks to multicast wait for the link, new contributions wait, and
// contributions that were lost do not. The new ones go when the link is claimed no more.
func TestContributionsWaitForWhatIsMulticast(t *testing.T) {
	u, m, o := rig(t, 1024, nil, false)
	var words sendlink.Words
	at := now()
	link := sendlink.New(&words, func() time.Duration { return at })
	u.cfg.Link, u.wait.Link, u.behind.Link = link, link, link
	came := func(want int) {
		t.Helper()
		until(t, func() bool {
			u.Work(at)
			_, err := m.batch.Receive(m.Socket, nil, 8, m)
			require.NoError(t, err)
			return len(m.heads) >= want
		})
		require.Len(t, m.heads, want)
	}
	link.Claim(fabric.MulticastTogether, 50*time.Millisecond)
	u.lane.Post(at, o)
	credit := make([]byte, wire.SlotBodySize+1)
	(&wire.SlotCredit{Limit: 8, Missing: wire.SlotSet{From: m.heads[1].Slot, Bits: []byte{1}}}).Put(credit)
	m.send(t, wire.Slot{Kind: wire.Allowance, Job: 7}, credit)
	came(5)
	require.Equal(t, m.heads[1], m.heads[3], "what was lost")
	require.Equal(t, wire.Kept, m.heads[4].Kind, "what is kept takes no room")
	for range 100 {
		u.Work(at)
	}
	_, err := m.batch.Receive(m.Socket, nil, 8, m)
	require.NoError(t, err)
	require.Len(t, m.heads, 5)
	look, waits := u.Deadline()
	require.True(t, waits)
	require.Greater(t, look, at, "busy waiting")
	require.LessOrEqual(t, look, at+500*time.Microsecond)
	at += 51 * time.Millisecond
	came(7)
	u.Work(at)
	_, waits = u.wait.Deadline()
	require.False(t, waits, "nothing waits any more")
}

// TestContributionsThatAreBehindDoNotWait: where an Allgather has had more than its share.
func TestContributionsThatAreBehindDoNotWait(t *testing.T) {
	u, m, o := rig(t, 1024, nil, false)
	var words sendlink.Words
	at := now()
	link := sendlink.New(&words, func() time.Duration { return at })
	u.cfg.Link, u.wait.Link, u.behind.Link = link, link, link
	link.Claim(fabric.MulticastTogether, 50*time.Millisecond)
	link.Ahead(10_000)
	u.lane.Post(at, o)
	credit := make([]byte, wire.SlotBodySize)
	(&wire.SlotCredit{Limit: 8}).Put(credit)
	m.send(t, wire.Slot{Kind: wire.Allowance, Job: 7}, credit)
	until(t, func() bool {
		u.Work(at)
		_, err := m.batch.Receive(m.Socket, nil, 8, m)
		require.NoError(t, err)
		return len(m.heads) == 6
	})
	require.Equal(t, 10_000-2*1024, link.Ahead(0), "contributions are counted")
}

// TestContributionsDoNotWaitForOtherOrders: a Reduce-Scatter of all ranks at once is in step with no
// windows that are multicast in the order of ranks.
func TestContributionsDoNotWaitForOtherOrders(t *testing.T) {
	u, m, o := rig(t, 1024, nil, false)
	var words sendlink.Words
	at := now()
	link := sendlink.New(&words, func() time.Duration { return at })
	u.cfg.Link, u.wait.Link, u.behind.Link = link, link, link
	link.Claim(fabric.Multicast, 50*time.Millisecond)
	u.lane.Post(at, o)
	credit := make([]byte, wire.SlotBodySize)
	(&wire.SlotCredit{Limit: 8}).Put(credit)
	m.send(t, wire.Slot{Kind: wire.Allowance, Job: 7}, credit)
	until(t, func() bool {
		u.Work(at)
		_, err := m.batch.Receive(m.Socket, nil, 8, m)
		require.NoError(t, err)
		return len(m.heads) == 6
	})
}

// TestContributionsInTheBackground are in no order: they wait for no Allgather, and no Allgather waits for
// them, neither because they are behind nor because they have not been counted.
func TestContributionsInTheBackground(t *testing.T) {
	u, m, o := rig(t, 1024, nil, false)
	var words sendlink.Words
	at := now()
	link := sendlink.New(&words, func() time.Duration { return at })
	u.cfg.Link, u.wait.Link, u.behind.Link = link, link, link
	u.Pace(&fabric.Background{Link: link})
	link.Claim(fabric.MulticastTogether, fabric.MostClaimed)
	link.Ahead(10_000)
	u.lane.Post(at, o)
	credit := make([]byte, wire.SlotBodySize)
	(&wire.SlotCredit{Limit: 8}).Put(credit)
	m.send(t, wire.Slot{Kind: wire.Allowance, Job: 7}, credit)
	until(t, func() bool {
		u.Work(at)
		_, err := m.batch.Receive(m.Socket, nil, 8, m)
		require.NoError(t, err)
		return len(m.heads) == 6
	})
	u.account(contributed{first: true, bytes: 1024, full: true}) // as where there is no room
	require.Zero(t, link.Claimed(fabric.Behind))
	require.Zero(t, link.Claimed(fabric.BehindTogether))
	require.Equal(t, 10_000, link.Ahead(0), "contributions are not counted")
	_, waits := u.wait.Deadline()
	require.False(t, waits)
}
