package multicast

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A queue that never runs empty keeps its order, and does not grow for that.
func TestQueueReusesItsMemory(t *testing.T) {
	var q queue[int]
	const fullest = 50
	next := 0
	for i := range 100_000 {
		q.push(i)
		if q.len() == fullest {
			for range fullest / 2 {
				v, ok := q.front()
				require.True(t, ok)
				require.Equal(t, next, v)
				next++
				q.pop()
			}
		}
	}
	require.LessOrEqual(t, cap(q.items), 4*fullest)
}
