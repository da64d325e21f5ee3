package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestVerbsSealed: every operation gives the right bytes where devices multicast sealed data, also with losses and with
// registered memory. With a secret Reduce-Scatter and repairs go by TCP.
func TestVerbsSealed(t *testing.T) {
	for name, how := range sealed {
		t.Run(name, func(t *testing.T) {
			g := overDevices(t, []hostnet.Network{nil}, four[:3], func(s *config.Settings) {
				how(s)
				s.Fabric, s.Loss = "verbs", 0.02
			})
			require.Equal(t, "verbs", g[0].Info().Fabric)
			const n = 100_000
			each(t, len(g), func(r int) error { return eachOperation(g[r], 20_000) })
			each(t, len(g), func(r int) error {
				result := make([]byte, len(g)*n)
				m, err := g[r].Register(result)
				require.NoError(t, err)
				for round := range 3 {
					want := make([]byte, len(result))
					fill(want, round)
					own := result[r*n:][:n]
					copy(own, want[r*n:])
					if err := g[r].Allgather(own, result); err != nil {
						return err
					}
					require.Equal(t, want, result, "rank %d, round %d", r, round)
					clear(result)
				}
				return m.Release()
			})
			s := g[1].Stats()
			require.Positive(t, s.ChunksInjected)
			require.Zero(t, s.ChunksMismatched)
			if name != "checksum" {
				require.Zero(t, s.ChunksRead)
			}
			if name == "encryption" {
				require.Zero(t, s.GatherLentBytes)
			}
			if name == "tags" {
				require.Positive(t, s.GatherLentBytes)
			}
		})
	}
}

// TestVerbsStreamsWithSecret: devices carry nothing of a Reduce-Scatter.
func TestVerbsStreamsWithSecret(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, four, func(s *config.Settings) { s.Secret, s.Encrypt = secret, true })
	const n = 256 << 10
	sent := systest.Counted(t, "sent_pkts")
	each(t, 4, func(r int) error {
		sums := make([]byte, n)
		if err := g[r].ReduceScatter(recvLike(4*n, uint32(r)), sums, reduce.I32, reduce.Sum, 0); err != nil {
			return err
		}
		require.Equal(t, recvLike(n, 6), sums)
		return nil
	})
	require.Less(t, systest.Counted(t, "sent_pkts")-sent, n/4096)
}
