package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScreenScrolls: keys move among more lines than there is room for, and no further.
func TestScreenScrolls(t *testing.T) {
	s := screen{}
	for i := range 10 {
		s.lines = append(s.lines, fmt.Sprintf("line %d", i+1))
	}
	require.Equal(t, s.lines, s.page(80, 10))
	require.Equal(t, []string{"l", "l"}, (&screen{lines: s.lines[:2]}).page(1, 10))
	for _, step := range []struct{ key, first, last string }{
		{"k", "line 1", "lines 1 to 3 of 10: arrows, space, b; q ends"},
		{"j", "line 2", "lines 2 to 4 of 10: arrows, space, b; q ends"},
		{" ", "line 4", "lines 4 to 6 of 10: arrows, space, b; q ends"},
		{"b", "line 2", "lines 2 to 4 of 10: arrows, space, b; q ends"},
		{"G", "line 8", "lines 8 to 10 of 10: arrows, space, b; q ends"},
		{"\x1b[B", "line 8", "lines 8 to 10 of 10: arrows, space, b; q ends"},
		{"\x1b[A", "line 7", "lines 7 to 9 of 10: arrows, space, b; q ends"},
		{"g", "line 1", "lines 1 to 3 of 10: arrows, space, b; q ends"},
		{"x", "line 1", "lines 1 to 3 of 10: arrows, space, b; q ends"},
	} {
		require.True(t, s.move(step.key, 4))
		page := s.page(80, 4)
		require.Len(t, page, 4)
		require.Equal(t, step.first, page[0], step.key)
		require.Equal(t, step.last, page[3], step.key)
	}
	for _, end := range []string{"q", "\x03", "\x04"} {
		require.False(t, s.move(end, 4))
	}
	s.lines = nil
	require.Empty(t, s.page(80, 4))
}
