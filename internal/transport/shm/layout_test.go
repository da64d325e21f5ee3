package shm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
)

func TestLayoutCheck(t *testing.T) {
	good := Layout{Size: 4, Chunk: 100, Slots: 3, Stream: page}
	assert.NoError(t, good.Check())
	for _, c := range []struct {
		change func(*Layout)
		want   string
	}{
		{func(l *Layout) { l.Size = 0 }, "shm: ranks of a host: 0, allowed are 1 to 256"},
		{func(l *Layout) { l.Size = 257 }, "shm: ranks of a host: 257, allowed are 1 to 256"},
		{func(l *Layout) { l.Chunk = -1 }, "shm: bytes of a chunk: -1, allowed are 1 to 16777216"},
		{func(l *Layout) { l.Slots = 1025 }, "shm: slots of a ring: 1025, allowed are 1 to 1024"},
		{func(l *Layout) { l.Stream = 0 }, "shm: bytes of a stream: 0, allowed are 1 to 1073741824"},
		{func(l *Layout) { l.Stream = 4097 }, "shm: bytes of a stream: 4097, allowed are multiples of 4096"},
	} {
		bad := good
		c.change(&bad)
		assert.EqualError(t, bad.Check(), c.want)
	}
}

func TestDefaultLayoutIsBounded(t *testing.T) {
	for size := 1; size <= MaxSize; size++ {
		l := DefaultLayout(size)
		assert.NoError(t, l.Check(), "%d ranks", size)
		assert.LessOrEqual(t, l.Bytes(), 620<<20, "%d ranks", size)
	}
	assert.LessOrEqual(t, DefaultLayout(4).Bytes(), 11<<20)
}

// TestRegions hands out every counter, box, slot and stream of a region and
// checks that no two share a byte, and counters not even a cache line.
func TestRegions(t *testing.T) {
	for size := 1; size <= 9; size++ {
		l := Layout{Size: size, Chunk: 100, Slots: 3, Stream: page, Message: 2 * page}
		p, owner := l.places(), map[int]string{}
		claim := func(what string, from, to int) {
			assert.Zero(t, from%line, "%s of %d ranks", what, size)
			assert.GreaterOrEqual(t, from, page)
			assert.LessOrEqual(t, to, l.Bytes())
			for at := from / line; at*line < to; at++ {
				assert.Empty(t, owner[at], "line %d also of %s, %d ranks", at, what, size)
				owner[at] = what
			}
		}
		claim("bells", p.bells, p.bells+size*line)
		claim("names", p.names, p.names+size*line)
		claim("rings", p.rings, p.rings+size*l.ringBytes())
		claim("boxes", p.boxes, p.boxes+size*len(topology.Distances(size))*mailboxBytes)
		claim("slots", p.slots, p.slots+size*l.Slots*l.slotBytes())
		for set, s := range p.streams {
			claim(fmt.Sprint("bells of streams ", set), s.bells, s.bells+size*line)
			claim(fmt.Sprint("positions of streams ", set), s.positions, s.positions+size*size*2*line)
			claim(fmt.Sprint("bytes of streams ", set), s.bytes, s.bytes+size*(size-1)*s.ring)
		}
	}
}
