package survey

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// disjoint fails the test if a host is in two matches of a round.
func disjoint(t *testing.T, rounds [][]match, n int) (meetings map[match]int) {
	t.Helper()
	meetings = make(map[match]int)
	for _, round := range rounds {
		busy := make(map[int]bool)
		for _, m := range round {
			require.Less(t, m.a, m.b)
			require.Less(t, m.b, n)
			require.False(t, busy[m.a] || busy[m.b], "%v in %v", m, round)
			busy[m.a], busy[m.b] = true, true
			meetings[m]++
		}
	}
	return meetings
}

func TestEachMeetsEachOnce(t *testing.T) {
	for n := range 40 {
		rounds := tournament(n, 1000)
		meetings := disjoint(t, rounds, n)
		assert.Len(t, meetings, n*(n-1)/2, n)
		for m, times := range meetings {
			assert.Equal(t, 1, times, m)
		}
		if n >= 2 {
			assert.Len(t, rounds, n-1+n%2)
		}
	}
}

// TestManyHosts holds that rounds are bounded, and each host has its share of them all the same.
func TestManyHosts(t *testing.T) {
	const n, most = 188, 32
	rounds := tournament(n, most)
	require.Len(t, rounds, most)
	met := make([]int, n)
	for m, times := range disjoint(t, rounds, n) {
		assert.Equal(t, 1, times, m)
		met[m.a]++
		met[m.b]++
	}
	for host, others := range met {
		assert.Equal(t, most, others, host)
	}
}

func TestAgain(t *testing.T) {
	rounds := tournament(6, 100)
	next := again(rounds, func(m match) bool { return m.a == 0 || m == match{1, 2} }, 100)
	meetings := disjoint(t, next, 6)
	assert.Len(t, meetings, 6)
	assert.Len(t, next, 5, "host 0 can meet one at a time")
	assert.Len(t, again(rounds, func(match) bool { return true }, 2), 2)
	assert.Empty(t, again(rounds, func(match) bool { return false }, 2))
}

// TestBudget leaves time for hosts to come and to look at themselves, of a minute
// for 188.
func TestBudget(t *testing.T) {
	const last = 3 * time.Second                     // of a round that begins just before the end
	const train = trainTime + castAfter + trainsTime // one begins just before the end
	assert.LessOrEqual(t, budget(4)+max(last, train), 18*time.Second)
	assert.LessOrEqual(t, budget(188)+max(last, train), 61*time.Second)
	assert.Greater(t, 3*budget(188)/4, 2*castTime(188)+10*time.Second, "some rounds are played")
}
