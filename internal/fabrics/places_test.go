package fabrics

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// TestErrorsNameRanks has errors of engines, which know members of a column or node by their place, name ranks of the
// group.
func TestErrorsNameRanks(t *testing.T) {
	m := team.Members{Ranks: []int{2, 5, 9}, Own: 1}
	from := func(place int) collective.Text {
		return collective.Textf("broadcast of 8 bytes from rank %d", collective.Place(place))
	}
	err := InRanks(&m, fmt.Errorf("x: %w",
		&collective.MismatchError{About: "operation 7", Who: [2]int{0, 2}, What: [2]collective.Text{from(0), from(1)}}))
	require.Equal(t, &mesh.Fault{
		Kind: mesh.Mismatch, Rank: 5,
		Between: &collective.Disagreement{
			Ranks: [2]int{2, 9}, What: [2]string{"broadcast of 8 bytes from rank 2", "broadcast of 8 bytes from rank 5"},
		},
		Text: "ranks disagree about a step (operation 7 of its lane): rank 2 called broadcast of 8 bytes from rank 2, " +
			"rank 9 broadcast of 8 bytes from rank 5",
	}, err)
	require.EqualError(t, InRanks(&m, &collective.MismatchError{
		About: "operation 3", Who: [2]int{0, 2},
		What: [2]collective.Text{{Words: "broadcast of 8 bytes from rank 1"}, {Words: "barrier"}}, Called: true,
	}), "ranks disagree about operation 3: rank 2 called broadcast of 8 bytes from rank 1, rank 9 barrier",
		"what was called is of the group already")
	require.EqualError(t,
		InRanks(&m, &collective.MismatchError{Who: [2]int{0, 2}, What: [2]collective.Text{from(1 << 20), from(2)}}),
		"ranks disagree: rank 2 called broadcast of 8 bytes from rank 1048576, rank 9 broadcast of 8 bytes from rank 9",
		"no place stays")

	var broken *direct.BrokenError
	err = InRanks(&m, &direct.BrokenError{Rank: 1, Err: fmt.Errorf("tcp: it closed its stream: %w", io.EOF)})
	require.ErrorAs(t, err, &broken)
	require.Equal(t, 5, broken.Rank)
	require.EqualError(t, err, "stream of rank 5: tcp: it closed its stream: EOF")
	require.ErrorIs(t, err, io.EOF)

	err = InRanks(&m, fmt.Errorf("udp: %w", &fabric.PeerError{Peer: 2, Err: io.EOF}))
	require.EqualError(t, err, "connection to rank 9: EOF")
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, InRanks(&m, nil))
	require.Equal(t, -1, m.Rank(-1))
}

// TestEveryoneKeepsItsWords: where all ranks are members, an operation is no step.
func TestEveryoneKeepsItsWords(t *testing.T) {
	m := team.Everyone(1, 3)
	other := errors.New("rank 2 called")
	require.Same(t, other, InRanks(&m, other))
	e := &collective.MismatchError{
		About: "operation 1", Who: [2]int{0, 1},
		What: [2]collective.Text{collective.Textf("barrier"), collective.Textf("allgather of 8 bytes")},
	}
	require.EqualError(t, InRanks(&m, e),
		"ranks disagree about operation 1: rank 0 called barrier, rank 1 allgather of 8 bytes")
	node := team.Members{Ranks: []int{0, 1, 2}, Own: 1} // the first ones of several hosts
	require.EqualError(t, InRanks(&node, e),
		"ranks disagree about a step (operation 1 of its lane): rank 0 called barrier, rank 1 allgather of 8 bytes")
}
