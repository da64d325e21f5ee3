package group

// placer deals a ring of memory to reservations, one after another. Whoever makes the same
// reservations in the same order gets the same places, without a word to anybody.
type placer struct {
	bytes  int // of the ring
	next   int // where the next reservation begins, unless it does not fit there
	number uint64
	order  uint64 // a hash of what was reserved so far
	lap    int
	live   []place // in order; whoever lies where a later one lies is none of them
}

// place is where a reservation lies. Nobody may write there before all have released the
// reservation after, and those before it; 0: nobody has been there.
type place struct {
	number   uint64 // from 1 on
	after    uint64
	order    uint64 // a hash of all that was reserved, this included
	from, to int
	lap      int
}

// take returns the place of the next reservation, or false if it would fill more than half of the
// ring: two must fit, or each would wait for the one before.
func (p *placer) take(bytes int) (place, bool) {
	if bytes > p.bytes/2 {
		return place{}, false
	}
	if p.next+bytes > p.bytes {
		p.next = 0
		p.lap++
	}
	var after uint64
	if len(p.live) > 0 {
		after = p.live[0].number - 1
	}
	for len(p.live) > 0 && (p.live[0].lap < p.lap-1 || p.live[0].lap < p.lap && p.live[0].from < p.next+bytes) {
		after = p.live[0].number
		p.live = p.live[1:]
	}
	p.number++
	p.order = (p.order ^ uint64(bytes)) * 0x100000001b3 // FNV-1a's prime
	at := place{p.number, after, p.order, p.next, p.next + bytes, p.lap}
	p.live = append(p.live, at)
	p.next += bytes
	return at, true
}
