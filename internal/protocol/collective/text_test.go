package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestText: places get their names where they are shown, also those of a text within a text.
func TestText(t *testing.T) {
	inner := Textf("a broadcast of %d bytes from rank %d", 8, Place(1))
	outer := Textf("rank %d called %v, %v", Place(0), inner, "100% of it")
	require.Equal(t, "rank 0 called a broadcast of 8 bytes from rank 1, 100% of it", outer.String())
	require.Equal(t, "rank 4 called a broadcast of 8 bytes from rank 9, 100% of it",
		outer.In(func(place int) int { return []int{4, 9}[place] }))
	require.Equal(t, "barrier", Textf("barrier").In(func(int) int { panic("it names nobody") }))
	require.Equal(t, inner, Textf("a broadcast of %d bytes from rank %v", 8, Place(1)))
}

// TestMismatchIn: the error names the members that disagree, and the ranks in their texts.
func TestMismatchIn(t *testing.T) {
	ranks := []int{2, 5, 9}
	name := func(place int) int { return ranks[place] }
	e := &MismatchError{
		About: "operation 7", Who: [2]int{0, 2},
		What: [2]Text{Textf("broadcast of 8 bytes from rank %d", Place(1)), Textf("barrier")},
	}
	require.EqualError(t, e,
		"ranks disagree about operation 7: rank 0 called broadcast of 8 bytes from rank 1, rank 2 barrier")
	d := e.In(name)
	require.Equal(t, Disagreement{Ranks: [2]int{2, 9}, What: [2]string{"broadcast of 8 bytes from rank 5", "barrier"}}, d)
	require.Equal(t, "ranks disagree about x: rank 2 called broadcast of 8 bytes from rank 5, rank 9 barrier",
		d.Words("x"))
}
