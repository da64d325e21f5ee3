package explain

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// sums is for how long the ranks that were seen have waited for each rank, as parts of the interval. Operations beside
// each other each wait, so that it may be above the number of ranks that wait.
type sums struct {
	of   map[int]float64         // by the rank waited for: the waits of all ranks for it
	from map[int]map[int]float64 // by a rank that was seen, and by the rank that it waited for

	shared []wait // waits for one of several ranks
}

// wait is what a rank has waited for one of some ranks, as a part of the interval.
type wait struct {
	by    int
	ranks []int
	share float64
}

// waitedFor adds up the accounts. Without it, each comparison of two ranks would go over all accounts again.
func (j *Job) waitedFor() *sums {
	s := &sums{of: map[int]float64{}, from: map[int]map[int]float64{}}
	numbers := make([]int, j.Size)
	for i := range numbers {
		numbers[i] = i
	}
	for i := range j.Accounts {
		a := &j.Accounts[i]
		ring := a.Ring
		switch {
		case ring == nil:
			ring = numbers
		case !distinct(ring, j.Size):
			ring = nil // a process may publish anything
		}
		of, seen := map[int]float64{}, map[int]bool{}
		for _, w := range a.Awaited {
			if seen[w.Rank] || w.Rank == a.Rank || w.Rank < 0 || w.Rank >= j.Size {
				continue // a process may publish anything
			}
			seen[w.Rank] = true
			s.follow(a, w.Rank, &w.Credit, ring, belowIn)
			s.follow(a, w.Rank, &w.Barrier, ring, behindIn)
			of[w.Rank] = a.share(w.Sum())
			s.of[w.Rank] += of[w.Rank]
		}
		s.from[a.Rank] = of
	}
	s.settle()
	return s
}

// follow takes a rank's wait for another one, if that may itself have waited for others.
func (s *sums) follow(
	a *Account, other int, d *time.Duration, ring []int, concerned func(ring []int, rank, other int) []int,
) {
	if *d <= 0 {
		return
	}
	if ranks := concerned(ring, a.Rank, other); len(ranks) > 1 {
		s.shared = append(s.shared, wait{a.Rank, ranks, a.share(*d)})
		*d = 0
	}
}

// distinct reports whether all are ranks, each once.
func distinct(ring []int, size int) bool {
	seen := make([]bool, size)
	for _, r := range ring {
		if r < 0 || r >= size || seen[r] {
			return false
		}
		seen[r] = true
	}
	return true
}

// settle divides each wait for several ranks among them, in proportion to the other waits for each, again and again:
// the waits gather at the rank that they have in common. Where there is none they stay spread: ranks of healthy jobs
// with full links differed by 0.06 afterwards, and a slow one by 0.3 to 0.8 among 4 ranks.
func (s *sums) settle() {
	const passes = 32 // of 64 ranks some 16 were too few
	weight := make([][]float64, len(s.shared))
	for i, w := range s.shared {
		weight[i] = make([]float64, len(w.ranks))
		for k := range w.ranks {
			weight[i][k] = w.share / float64(len(w.ranks))
		}
	}
	for pass := 0; pass < passes && len(s.from) >= fewest; pass++ { // fewer have nothing in common but chance
		all := maps.Clone(s.of)
		for i, w := range s.shared {
			for k, r := range w.ranks {
				all[r] += weight[i][k]
			}
		}
		for i, w := range s.shared {
			sum := 0.0
			for _, r := range w.ranks {
				sum += all[r]
			}
			for k, r := range w.ranks {
				if sum > 0 {
					weight[i][k] = w.share * all[r] / sum
				}
			}
		}
	}
	for i, w := range s.shared {
		for k, r := range w.ranks {
			s.of[r] += weight[i][k]
			s.from[w.by][r] += weight[i][k]
		}
	}
}

// belowIn returns the ranks that a word of credit from a child concerns: the child, and those below it in the tree of a
// root, where child j is at the distance 2^j in the ring (topology.Graph). Of them the slowest says how far to send.
func belowIn(ring []int, root, child int) []int {
	return spread(ring, root, child, 1)
}

// behindIn returns the ranks that a word of the barrier concerns: in its round j it comes from the rank at the distance
// 2^j before this one, once that has heard the rounds before, which are of as many ranks (topology.Graph).
func behindIn(ring []int, rank, from int) []int { return spread(ring, rank, from, -1) }

// spread returns as many ranks as the distance from one rank to another is, from the other on, in one direction of the
// ring. Only a distance that is a power of two stands for others.
func spread(ring []int, one, other, direction int) []int {
	own, at := slices.Index(ring, one), slices.Index(ring, other)
	if own < 0 || at < 0 {
		return []int{other}
	}
	size := len(ring)
	distance := (direction*(at-own) + size) % size
	if distance&(distance-1) != 0 {
		return []int{other}
	}
	var ranks []int
	for d := distance; d < min(2*distance, size); d++ {
		ranks = append(ranks, ring[(own+direction*d+2*size)%size])
	}
	return ranks
}

// mean is what those ranks that were seen, but for one, have waited for a rank.
func (s *sums) mean(rank, but int) float64 {
	n := len(s.from)
	if s.from[rank] != nil {
		n--
	}
	if s.from[but] != nil && but != rank {
		n--
	}
	return (s.of[rank] - s.from[but][rank]) / float64(max(n, 1))
}

// odd is by how much more the others wait for a rank than for any other; the rank's own waits do not count.
func (s *sums) odd(rank int) (by, mine float64) {
	others := 0.0
	for other := range s.of {
		if other != rank {
			others = max(others, s.mean(other, rank))
		}
	}
	mine = s.mean(rank, -1)
	return mine - others, mine
}

// waits writes the figures of odd for people.
func waits(mine, odd float64) string {
	return fmt.Sprintf("in each second operations of the others wait for it for %.2f s, beside each other, and for any "+
		"other rank for %.2f s at most", mine, mine-odd)
}
