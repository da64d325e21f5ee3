package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestMismatchOf: who disagrees about what, of what has fields and of what has none.
func TestMismatchOf(t *testing.T) {
	want := collective.Disagreement{Ranks: [2]int{2, 11}, What: [2]string{"broadcast (root 3, 8 bytes)", "a barrier"}}
	d, ok := MismatchOf(fmt.Errorf("rank 0 of 9: %w", mesh.Disagree(1, &want, "operation 7")))
	require.True(t, ok)
	require.Equal(t, want, d)
	d, ok = MismatchOf(&Fault{Kind: Mismatch, Rank: 1, Text: "other words"})
	require.True(t, ok)
	require.Equal(t, collective.Disagreement{Ranks: [2]int{1, -1}, What: [2]string{"other words", ""}}, d)
	d, ok = MismatchOf(team.DifferentSettings("MCAST_PORT=5000 MCAST_CHAINS=2 MCAST_CHUNK=1000",
		"MCAST_PORT=5000 MCAST_CHAINS=4", 6))
	require.True(t, ok)
	require.Equal(t, collective.Disagreement{
		Ranks: [2]int{0, 6}, What: [2]string{"MCAST_CHAINS=2 MCAST_CHUNK=1000", "MCAST_CHAINS=4 MCAST_CHUNK=0"},
	}, d)
	d, ok = MismatchOf(fmt.Errorf("x: %w", &bootstrap.Refusal{Text: "t", Between: &want}))
	require.True(t, ok)
	require.Equal(t, want, d)
	_, ok = MismatchOf(&bootstrap.Refusal{Text: "t"})
	require.False(t, ok)
	_, ok = MismatchOf(&Fault{Kind: Dead, Rank: 1, Text: "rank 1 called x, rank 2 y"})
	require.False(t, ok)
}

// TestPathOf: PathOf names the two ranks of the broken path, even if the text names others.
func TestPathOf(t *testing.T) {
	for _, f := range []*Fault{{Kind: Path, From: 3, Rank: 12, Text: "rank 5 cannot connect to rank 6"},
		{Kind: Path, From: 5, Rank: 12}} {
		from, to, ok := PathOf(fmt.Errorf("rank 7 of 20 cannot join: %w", f))
		require.True(t, ok)
		require.Equal(t, [2]int{f.From, 12}, [2]int{from, to}, f)
	}
	_, _, ok := PathOf(&Fault{Kind: Dead, Rank: 12, From: 3})
	require.False(t, ok)
}
