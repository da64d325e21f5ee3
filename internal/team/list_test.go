package team

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRankLists(t *testing.T) {
	require.Equal(t, "rank 3", RankList([]int{3}))
	require.Equal(t, "ranks 1, 2 and 5", RankList([]int{1, 2, 5}))
	require.Equal(t, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more", RankList([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
}
