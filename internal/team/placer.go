package team

// Placer deals a ring of memory to reservations, one after another. Ranks that make the same reservations in the same
// order get the same places, without a word to each other.
type Placer struct {
	Bytes  int // of the ring
	next   int // where the next reservation begins, unless it does not fit there
	number uint64
	order  uint64 // a hash of what was reserved so far
	lap    int
	live   []Place // in order, without the places that a later one overlaps
}

// Place is where a reservation lies. Nobody may write there before all have released the
// reservation after, and those before it; 0: nobody has been there.
type Place struct {
	Number   uint64 // from 1 on
	After    uint64
	Order    uint64 // a hash of all that was reserved, this included
	From, to int
	lap      int
}

// Take returns the place of the next reservation, or false if it would fill more than half of the
// ring: two must fit, or each would wait for the one before.
func (p *Placer) Take(bytes int) (Place, bool) {
	if bytes > p.Bytes/2 {
		return Place{}, false
	}
	if p.next+bytes > p.Bytes {
		p.next = 0
		p.lap++
	}
	var after uint64
	if len(p.live) > 0 {
		after = p.live[0].Number - 1
	}
	for len(p.live) > 0 && (p.live[0].lap < p.lap-1 || p.live[0].lap < p.lap && p.live[0].From < p.next+bytes) {
		after = p.live[0].Number
		p.live = p.live[1:]
	}
	p.number++
	p.order = (p.order ^ uint64(bytes)) * 0x100000001b3 // FNV-1a's prime
	at := Place{p.number, after, p.order, p.next, p.next + bytes, p.lap}
	p.live = append(p.live, at)
	p.next += bytes
	return at, true
}

// Page is what places are multiples of, in bytes.
const Page = 4096

// OutputBytes is how much memory so many members need for a ring of places.
func OutputBytes(members, ring int) int {
	if ring < 2*Page {
		return 0
	}
	return HeadsBytes(members) + ring/Page*Page
}

// HeadsBytes is how much of it comes before the ring: a line for each member.
func HeadsBytes(members int) int { return (members*Line + Page - 1) / Page * Page }
