package fault

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// narrow is a path that takes some of the added datagrams.
type narrow struct {
	fabric.Switch
	rng   *rand.Rand
	added []uint32 // slots
	went  []uint32
}

func (n *narrow) Add(h *wire.Slot, _ []byte) bool {
	n.added = append(n.added, h.Slot)
	return true
}

func (n *narrow) Flush(int) (int, error) {
	sent := n.rng.IntN(len(n.added) + 1)
	n.went = append(n.went, n.added[:sent]...)
	n.added = nil
	return sent, nil
}

func (n *narrow) Stats() fabric.Stats { return fabric.Stats{} }

// TestFlushCountsWhatIsLost: a caller that sends again from where Flush stopped sends every
// datagram once or loses it, and none twice or never.
func TestFlushCountsWhatIsLost(t *testing.T) {
	const datagrams = 2000
	for seed := range uint64(20) {
		n := &narrow{rng: rand.New(rand.NewPCG(seed, 1))}
		f := LossySwitch(n, 0.3, seed)
		for next := uint32(0); next < datagrams; {
			batch := min(uint32(1+n.rng.IntN(20)), datagrams-next)
			for i := range batch {
				require.True(t, f.Add(&wire.Slot{Kind: wire.Contribution, Slot: next + i}, nil))
			}
			sent, err := f.Flush(0)
			require.NoError(t, err)
			require.LessOrEqual(t, sent, int(batch))
			next += uint32(sent)
		}
		require.IsIncreasing(t, n.went)
		require.InDelta(t, 0.7*datagrams, len(n.went), 0.1*datagrams)
		require.GreaterOrEqual(t, int(f.Stats().Injected), datagrams-len(n.went))
	}
}
