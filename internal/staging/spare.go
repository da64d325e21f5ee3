package staging

import (
	"slices"
	"sync"
)

// spare has what closed groups have made, for the next ones: it is never given back. To free pinned memory
// the driver may wait for all streams of the device, and among them may be one that waits for a collective
// of another group, which the program begins when this one is closed.
var spare = struct {
	sync.Mutex
	rings  map[Card][]*ring
	memory map[Card][][]byte // what rings have outgrown
	events map[Card][]uintptr
}{rings: map[Card][]*ring{}, memory: map[Card][][]byte{}, events: map[Card][]uintptr{}}

// takeRing returns a spare ring, or a new one that has nothing yet. Of spare ones it is the smallest that has
// so much memory, or else the largest.
func takeRing(c Card, bytes int) *ring {
	spare.Lock()
	defer spare.Unlock()
	all := spare.rings[c]
	i := best(all, bytes, func(r *ring) int { return len(r.memory) })
	if i < 0 {
		return &ring{card: c}
	}
	r := all[i]
	spare.rings[c] = slices.Delete(all, i, i+1)
	return r
}

// putRing takes a ring on which nothing is queued.
func putRing(r *ring) {
	spare.Lock()
	defer spare.Unlock()
	spare.memory[r.card] = append(spare.memory[r.card], r.retired...)
	r.retired = nil
	spare.rings[r.card] = append(spare.rings[r.card], r)
}

// takeMemory returns spare pinned memory of so many bytes at least, or nil.
func takeMemory(c Card, bytes int) []byte {
	spare.Lock()
	defer spare.Unlock()
	all := spare.memory[c]
	i := best(all, bytes, func(m []byte) int { return len(m) })
	if i < 0 || len(all[i]) < bytes {
		return nil
	}
	m := all[i]
	spare.memory[c] = slices.Delete(all, i, i+1)
	return m
}

// best returns which is the smallest that has so many bytes, or else the largest; -1 if there is none.
func best[T any](all []T, bytes int, size func(T) int) int {
	found := -1
	for i, one := range all {
		if found < 0 {
			found = i
			continue
		}
		n, had := size(one), size(all[found])
		if had < bytes && n > had || n >= bytes && n < had {
			found = i
		}
	}
	return found
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
