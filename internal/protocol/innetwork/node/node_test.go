package node

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// narrow is a link that takes few datagrams at a time, and often none with elements.
type narrow struct {
	rng      *rand.Rand
	added    []wire.Slot
	went     []wire.Slot
	statuses int
	ahead    int // by how many contributions one was ahead of what went, at most
}

func (*narrow) Receive([]byte) bool { return false }
func (*narrow) Writable() bool      { return true }

func (l *narrow) Add(h *wire.Slot, payload []byte) bool {
	if len(l.added) > 0 && l.rng.IntN(4) == 0 {
		return false
	}
	l.added = append(l.added, *h)
	var st wire.SlotStatus
	if h.Kind == wire.Status && st.Get(payload) == nil {
		l.ahead = max(l.ahead, int(st.Next)-len(ofKind(l.went, wire.Contribution)))
		l.statuses++
	}
	return true
}

func (l *narrow) Flush() int {
	sent := len(l.added)
	if sent > 0 && l.added[0].Kind != wire.Allowance && l.added[0].Kind != wire.Status {
		sent = l.rng.IntN(sent + 1)
	}
	l.went = append(l.went, l.added[:sent]...)
	l.added = l.added[:0]
	return sent
}

const slots = 64

// contributed returns a node and the links of its two members. The node has taken their contributions to all slots of
// one operation.
func contributed(t *testing.T, rng *rand.Rand, parent *narrow) (*Node, *narrow) {
	t.Helper()
	terms := innetwork.Terms{Job: 1, Ranks: 2, Stripes: 1, Chunk: 8, Slots: slots, Wide: parent != nil, Cutoff: time.Hour}
	c := innetwork.StageConfig{Terms: terms, Members: 2, Owner: []int{0, 1}, Parent: parent != nil}
	c.Memory = make([]byte, innetwork.MemoryFor(&c))
	n, err := New(c)
	require.NoError(t, err)
	owner, other := &narrow{rng: rng}, &narrow{rng: rng}
	var up Link
	if parent != nil {
		up = parent
	}
	n.Connect([]Link{owner, other}, up, false)
	n.Begin(0)
	count := 4 * slots // sums of bf16 are rounded, so nobody keeps its own contribution
	if terms.Wide {
		count = 2 * slots // there is room for partial results
	}
	for r := range 2 {
		m := innetwork.NewMember(r, r, terms)
		m.Post(0, collective.Op{To: wire.ToRank(0), Count: count, Type: reduce.BF16})
		for {
			run, ok := m.NextRun(0)
			if !ok {
				break
			}
			for i := range run.Count {
				h := run.Header(i)
				require.True(t, n.Take(r, &h, make([]byte, run.Step)))
			}
			m.Sent(0, &run, run.Count)
		}
	}
	return n, owner
}

// ofKind returns the slots of the datagrams of a kind, in the order in which they went.
func ofKind(went []wire.Slot, kind wire.SlotKind) (all []uint32) {
	for _, h := range went {
		if h.Kind == kind {
			all = append(all, h.Slot)
		}
	}
	return all
}

// TestResultsKeepTheirOrder: results keep their order where a link takes only some of them at a time.
func TestResultsKeepTheirOrder(t *testing.T) {
	for seed := range uint64(20) {
		n, owner := contributed(t, rand.New(rand.NewPCG(seed, 1)), nil)
		for range 50 * slots {
			n.Work(0)
		}
		require.NoError(t, n.Err())
		results := ofKind(owner.went, wire.Result)
		require.Len(t, results, slots)
		require.IsIncreasing(t, results)
	}
}

// TestStatusFollowsWhatItCounts: a node tells its parent of no contribution that there was no room for yet.
func TestStatusFollowsWhatItCounts(t *testing.T) {
	for seed := range uint64(20) {
		up := &narrow{rng: rand.New(rand.NewPCG(seed, 2))}
		n, _ := contributed(t, up.rng, up)
		for i := range 50 * slots {
			n.Work(time.Duration(i) * time.Hour) // polls are due
		}
		require.Positive(t, up.statuses)
		require.Zero(t, up.ahead)
		contributions := ofKind(up.went, wire.Contribution)
		require.Len(t, contributions, slots)
		require.IsIncreasing(t, contributions)
	}
}

// congested is a link that finds no memory at its first Flush; then it is not Writable until the test says so.
type congested struct {
	narrow
	refused, writable bool
}

func (l *congested) Writable() bool { return l.writable }

func (l *congested) Flush() int {
	if !l.refused {
		l.refused, l.writable, l.added = true, false, nil
		return 0
	}
	sent := len(l.added)
	l.went, l.added = append(l.went, l.added...), nil
	return sent
}

// TestCongestion: what the parent's link once had no memory for goes when it is writable again. Until
// then polls wait behind it, and the parent counts as silent.
func TestCongestion(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		up := &congested{narrow: narrow{rng: rand.New(rand.NewPCG(1, 3))}, writable: true}
		n, _ := contributed(t, up.rng, &up.narrow)
		n.up, n.timeout = up, 10*time.Hour
		n.Work(time.Hour)
		require.True(t, up.refused)
		require.False(t, n.Work(2*time.Hour), "there is nothing to do but wait")
		require.NoError(t, n.Err())
		up.writable = recovers
		for range 50 * slots {
			n.Work(3 * time.Hour)
		}
		n.Begin(11 * time.Hour)
		require.NoError(t, n.Err())
		for at := 12 * time.Hour; at <= 20*time.Hour; at += time.Hour {
			_ = n.Err() // a look
			n.Begin(at)
		}
		var silence *SilenceError
		require.ErrorAs(t, n.Err(), &silence, "nobody has answered")
		contributions := ofKind(up.went, wire.Contribution)
		if !recovers {
			require.Empty(t, contributions)
			continue
		}
		require.Len(t, contributions, slots)
		require.IsIncreasing(t, contributions)
	}
}
