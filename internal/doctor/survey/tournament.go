package survey

// match is two hosts that measure the path between them, by their places in the roster.
type match struct{ a, b int }

// tournament lets each of n hosts meet each other one, in rounds of matches that share no host, so
// that no match slows another one on a link (the circle method: one host stays, the others go
// round). Of more rounds than most it takes as many, evenly spread: each host then meets that many
// others, and no two hosts the same ones.
func tournament(n, most int) (rounds [][]match) {
	if n < 2 {
		return nil
	}
	seats := n + n%2 // who meets the seat that nobody has rests
	all := seats - 1
	count := min(all, max(most, 1))
	for i := range count {
		turn := i * all / count
		seat := func(k int) int { // who sits there in this turn
			if k == 0 {
				return 0
			}
			return 1 + (k-1+turn)%all
		}
		var round []match
		for k := range seats / 2 {
			a, b := seat(k), seat(seats-1-k)
			if a < n && b < n {
				round = append(round, match{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}

// again makes rounds of the matches that asks selects, to be played once more. There are at most so many rounds;
// matches that do not fit are left out.
func again(rounds [][]match, asks func(match) bool, most int) (next [][]match) {
	for _, round := range rounds {
		for _, m := range round {
			if !asks(m) {
				continue
			}
			next = place(next, m, most)
		}
	}
	return next
}

// place adds a match to the first round that has neither of its hosts.
func place(rounds [][]match, m match, most int) [][]match {
	for i, round := range rounds {
		free := true
		for _, other := range round {
			if other.a == m.a || other.a == m.b || other.b == m.a || other.b == m.b {
				free = false
			}
		}
		if free {
			rounds[i] = append(round, m)
			return rounds
		}
	}
	if len(rounds) == most {
		return rounds
	}
	return append(rounds, []match{m})
}
