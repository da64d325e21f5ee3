package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// among makes the readings between n hosts; bad says which are bad.
func among(n int, bad func(from, to int) bool) (all []reading) {
	for from := range n {
		for to := range n {
			if from != to {
				all = append(all, reading{from, to, bad(from, to)})
			}
		}
	}
	return all
}

func behind(hosts ...int) map[int]bool {
	m := make(map[int]bool)
	for _, h := range hosts {
		m[h] = true
	}
	return m
}

func TestTomography(t *testing.T) {
	uplink := behind(3, 4, 5)
	for name, c := range map[string]struct {
		n    int
		bad  func(from, to int) bool
		want []cause
	}{
		"healthy":            {4, func(_, _ int) bool { return false }, nil},
		"everything":         {4, func(_, _ int) bool { return true }, []cause{{all: true}}},
		"two hosts, one way": {2, func(from, _ int) bool { return from == 0 }, []cause{{pair: [2]int{0, 1}}}},
		"two hosts":          {2, func(_, _ int) bool { return true }, []cause{{all: true}}},
		"a host receives":    {4, func(_, to int) bool { return to == 2 }, []cause{{hosts: []int{2}, in: true}}},
		"a host sends":       {4, func(from, _ int) bool { return from == 2 }, []cause{{hosts: []int{2}, out: true}}},
		"a host of three":    {3, func(_, to int) bool { return to == 0 }, []cause{{hosts: []int{0}, in: true}}},
		"a host both ways": {4, func(from, to int) bool { return from == 1 || to == 1 },
			[]cause{{hosts: []int{1}, in: true, out: true}}},
		"two hosts receive": {5, func(_, to int) bool { return to == 1 || to == 3 },
			[]cause{{hosts: []int{1}, in: true}, {hosts: []int{3}, in: true}}},
		"one receives, another sends": {6, func(from, to int) bool { return to == 1 || from == 4 },
			[]cause{{hosts: []int{1}, in: true}, {hosts: []int{4}, out: true}}},
		"a pair": {4, func(from, to int) bool { return from == 1 && to == 3 }, []cause{{pair: [2]int{1, 3}}}},
		"a pair both ways": {4, func(from, to int) bool { return from+to == 4 && from != to && from*to == 3 },
			[]cause{{pair: [2]int{1, 3}}, {pair: [2]int{3, 1}}}},
		"a host and a pair": {5, func(from, to int) bool { return to == 2 || from == 0 && to == 4 },
			[]cause{{hosts: []int{2}, in: true}, {pair: [2]int{0, 4}}}},
		"behind one port": {7, func(from, to int) bool { return uplink[from] != uplink[to] },
			[]cause{{hosts: []int{3, 4, 5}, in: true, out: true}}},
		"to those behind one port": {7, func(from, to int) bool { return !uplink[from] && uplink[to] },
			[]cause{{hosts: []int{3, 4, 5}, in: true}}},
		"from those behind one port": {7, func(from, to int) bool { return uplink[from] && !uplink[to] },
			[]cause{{hosts: []int{3, 4, 5}, out: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ElementsMatch(t, c.want, tomography(c.n, among(c.n, c.bad), 1))
		})
	}
}

// TestFewReadings has many hosts, with readings for only some of the pairs.
func TestFewReadings(t *testing.T) {
	var some []reading
	for from := range 40 {
		for step := 1; step <= 6; step++ {
			to := (from + step*step) % 40
			some = append(some, reading{from, to, to == 17})
		}
	}
	assert.Equal(t, []cause{{hosts: []int{17}, in: true}}, tomography(40, some, 1))
}

// TestMostOfAHost: most of a host's readings are enough where a measurement may miss a fault.
func TestMostOfAHost(t *testing.T) {
	seen := func(from, to int) bool { return to == 2 && from != 7 }
	assert.Equal(t, []cause{{hosts: []int{2}, in: true}}, tomography(8, among(8, seen), 0.75))
	assert.Len(t, tomography(8, among(8, seen), 1), 6, "pairs, where all must fail")
}
