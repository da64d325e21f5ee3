package staging

import "sync"

// spare has what closed groups have made, for the next ones: it is never given back. To free pinned memory
// the driver may wait for all streams of the device, and among them may be one that waits for a collective
// of another group, which the program begins when this one is closed.
var spare = struct {
	sync.Mutex
	rings  map[ringKind][]*ring
	events map[Card][]uintptr
}{rings: map[ringKind][]*ring{}, events: map[Card][]uintptr{}}

// ringKind is what rings that can stand for each other have in common.
type ringKind struct {
	card  Card
	bytes int // of a slot
}

// takeRing returns a spare ring, or nil.
func takeRing(k ringKind) *ring {
	spare.Lock()
	defer spare.Unlock()
	n := len(spare.rings[k])
	if n == 0 {
		return nil
	}
	r := spare.rings[k][n-1]
	spare.rings[k] = spare.rings[k][:n-1]
	return r
}

// putRing takes a ring on which nothing is queued.
func putRing(k ringKind, r *ring) {
	spare.Lock()
	defer spare.Unlock()
	spare.rings[k] = append(spare.rings[k], r)
}

// takeEvent returns a spare event, or 0.
func takeEvent(c Card) uintptr {
	spare.Lock()
	defer spare.Unlock()
	n := len(spare.events[c])
	if n == 0 {
		return 0
	}
	e := spare.events[c][n-1]
	spare.events[c] = spare.events[c][:n-1]
	return e
}

// putEvent takes an event that nobody will record or wait for as it is now.
func putEvent(c Card, e uintptr) {
	spare.Lock()
	defer spare.Unlock()
	spare.events[c] = append(spare.events[c], e)
}
