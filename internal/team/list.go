package team

import (
	"fmt"
	"strings"
)

// RankList spells sorted ranks: "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4
// more".
func RankList(ranks []int) string {
	const most = 8
	switch {
	case len(ranks) == 0:
		return "no rank"
	case len(ranks) == 1:
		return fmt.Sprintf("rank %d", ranks[0])
	}
	more := len(ranks) - most
	if more > 0 {
		ranks = ranks[:most]
	}
	text := make([]string, len(ranks))
	for i, r := range ranks {
		text[i] = fmt.Sprint(r)
	}
	if more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	last := len(text) - 1
	return "ranks " + strings.Join(text[:last], ", ") + " and " + text[last]
}
