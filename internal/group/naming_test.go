package group

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// TestErrorsNameRanks has errors of engines, which know members of a column or node by their index,
// name ranks of the group.
func TestErrorsNameRanks(t *testing.T) {
	m := members{ranks: []int{2, 5, 9}, own: 1}
	var mismatch *collective.MismatchError
	require.ErrorAs(t, m.inRanks(&collective.MismatchError{
		Party: "rank", About: "operation 7", Who: [2]int{0, 2}, What: [2]string{"broadcast of 8 bytes from rank 0", "broadcast of 262208 bytes from rank 1"},
	}), &mismatch)
	require.Equal(t, [2]int{2, 9}, mismatch.Who)
	require.EqualError(t, mismatch, "ranks disagree about a step (operation 7 of its lane): rank 2 called broadcast of 8 bytes from rank 2, "+
		"rank 9 broadcast of 262208 bytes from rank 5")
	ranks, what, ok := MismatchOf(&Fault{Kind: Mismatch, Rank: 5, Text: mismatch.Error()})
	require.True(t, ok)
	require.Equal(t, [2]int{2, 9}, ranks)
	require.Equal(t, mismatch.What, what)
	require.EqualError(t, m.inRanks(&collective.MismatchError{
		Party: "rank", About: "operation 3", Who: [2]int{0, 2}, What: [2]string{"broadcast of 8 bytes from rank 1", "barrier"}, Called: true,
	}), "ranks disagree about operation 3: rank 2 called broadcast of 8 bytes from rank 1, rank 9 barrier", "what was called is of the group already")
	require.ErrorAs(t, m.inRanks(&collective.MismatchError{Party: "member", Who: [2]int{0, 2}}), &mismatch)
	require.Equal(t, [2]int{0, 2}, mismatch.Who, "members of a switch's job keep their numbers")

	var broken *direct.BrokenError
	err := m.inRanks(&direct.BrokenError{Rank: 1, Err: fmt.Errorf("tcp: rank 1 closed its stream: %w", io.EOF)})
	require.ErrorAs(t, err, &broken)
	require.Equal(t, 5, broken.Rank)
	require.EqualError(t, err, "stream of rank 5: tcp: rank 5 closed its stream: EOF")
	require.ErrorIs(t, err, io.EOF)

	err = m.inRanks(fmt.Errorf("connection to rank 2: udp: rank 2: %w", &sys.StallError{}))
	require.Contains(t, err.Error(), "connection to rank 9: udp: rank 9: ")
	require.ErrorAs(t, err, new(*sys.StallError))
	require.NoError(t, m.inRanks(nil))
	require.Equal(t, -1, m.rank(-1))
}

// TestTextsOfSwitches: what a switch says of a column's job.
func TestTextsOfSwitches(t *testing.T) {
	m := members{ranks: []int{2, 5, 9}}
	for text, want := range map[string]string{
		"after 2s only ranks [0 2] have joined, 2 of 3": "after 2s only ranks [2 9] have joined, 2 of 3",
		"the switch at 10.0.0.5, with ranks [1],":       "the switch at 10.0.0.5, with ranks [5],",
		"rank 1 joins with 3 ranks":                     "rank 5 joins with 3 ranks",
		"rank 3 of 3":                                   "rank 3 of 3", // none of ours
		"rank 99999999999999999999 is gone":             "rank 99999999999999999999 is gone",
		"datagrams from rank 0 at 10.0.0.1 to rank 1":   "datagrams from rank 2 at 10.0.0.1 to rank 5",
	} {
		require.Equal(t, want, m.inGroup(text))
	}
}

// TestEveryoneKeepsItsWords: where all ranks are members, nothing is put otherwise, lengths of operations
// in one piece either.
func TestEveryoneKeepsItsWords(t *testing.T) {
	m := everyone(1, 3)
	for _, err := range []error{
		errors.New("rank 2 called"),
		&collective.MismatchError{Party: "rank", About: "operation 1", What: [2]string{"allgather of 1000000 bytes", "barrier"}},
	} {
		require.Same(t, err, m.inRanks(err))
	}
	node := members{ranks: []int{0, 1, 2}, own: 1} // the first ones of several hosts
	require.EqualError(t, node.inRanks(&collective.MismatchError{Party: "rank", About: "operation 1", Who: [2]int{0, 1}, What: [2]string{"barrier", "allgather of 8 bytes"}}),
		"ranks disagree about a step (operation 1 of its lane): rank 0 called barrier, rank 1 allgather of 8 bytes")
}
