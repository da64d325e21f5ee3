package incnet

// place is a node's in the tree.
type place struct {
	children []int // hosts, by member number
	owner    []int // by rank: the member through which it is reached, or -1
	number   int   // of the node at its parent
}

// plant gives every rank and node its number where it is attached. In rank order, a node takes its
// place at its parent with its lowest rank. The node n is on host P+n.
func (s *Scenario) plant() (places []place, numbers []int) {
	p := s.Terms.Ranks
	places, numbers = make([]place, len(s.Parents)), make([]int, p)
	for n := range places {
		places[n].owner = make([]int, p)
		for r := range p {
			places[n].owner[r] = -1
		}
	}
	known := map[int]bool{0: true}
	adopt := func(n, host int) int {
		places[n].children = append(places[n].children, host)
		return len(places[n].children) - 1
	}
	for r := range p {
		numbers[r] = adopt(s.At[r], r)
		places[s.At[r]].owner[r] = numbers[r]
		for n := s.At[r]; n != 0; n = s.Parents[n] {
			up := s.Parents[n]
			if !known[n] {
				known[n] = true
				places[n].number = adopt(up, p+n)
			}
			places[up].owner[r] = places[n].number
		}
	}
	return places, numbers
}
