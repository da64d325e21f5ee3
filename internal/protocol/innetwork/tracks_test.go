package innetwork

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// A Reduce to one rank does not wait for a Reduce to another rank, except for the first chunk of each.
func TestTracksAreDoneByThemselves(t *testing.T) {
	terms := Terms{Job: 1, Ranks: 4, Stripes: 4, Tracks: 4, Chunk: 8, Slots: 4}
	m := NewMember(3, 3, terms)
	for _, owner := range []int{1, 2} {
		m.Post(0, collective.Op{To: wire.ToRank(owner), Count: 3, Type: reduce.F64, Reduction: reduce.Sum})
	}
	for stripe, chunks := range []int{2, 2, 2, 0} {
		sent := 0
		for r, ok := m.NextRun(stripe); ok; r, ok = m.NextRun(stripe) {
			m.Sent(0, &r, r.Count)
			sent += r.Count
		}
		require.Equal(t, chunks, sent)
		require.Equal(t, chunks == 0, m.Idle(stripe))
	}
	free := func(stripe uint8, base uint32) {
		h := wire.Slot{Kind: wire.Allowance, Stripe: stripe, Member: 3, Job: 1}
		m.Credit(0, &h, &wire.SlotCredit{Base: base, Limit: base + 4})
	}
	done := func(want ...uint32) {
		var seqs []uint32
		for seq, ok := m.NextDone(); ok; seq, ok = m.NextDone() {
			seqs = append(seqs, seq)
		}
		require.Equal(t, want, seqs)
	}
	free(2, 2)
	done()
	free(0, 2)
	done(1)
	free(1, 2)
	done(0)
}
