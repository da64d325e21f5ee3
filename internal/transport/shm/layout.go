package shm

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
)

const (
	line = 64   // cache line, bytes
	page = 4096 // bytes

	// MaxSize is how many ranks may share a region.
	MaxSize = 256

	maxChunk  = 16 << 20
	maxSlots  = 1024
	maxStream = 1 << 30
	maxOutput = 1 << 40

	entries = 64 // messages that a mailbox holds
)

// Layout is the geometry of a region. All ranks of a region have the same.
type Layout struct {
	Size   int // ranks, 1 to MaxSize
	Chunk  int // payload bytes of a slot, 1 to 16 MiB
	Slots  int // slots of a rank's ring, 1 to 1024
	Stream int // bytes of the stream between two ranks, each way; a multiple of 4096, up to 1 GiB
	// Message is the same of the streams of messages; 0: there are none.
	Message int
	// Output is how many bytes of further memory there are, for results that ranks share; up to 1 TiB.
	// They lie behind all else, and take memory where they are written to alone.
	Output int
}

// DefaultLayout returns the geometry for a number of ranks: rings and streams that stay in cache
// for a few ranks, and a region that stays below about 620 MiB for MaxSize of them.
func DefaultLayout(size int) Layout {
	const total = 64 << 20 // bytes to aim at, for the rings and for the streams
	l := Layout{Size: size, Chunk: 128 << 10, Slots: 8, Stream: 256 << 10, Message: 256 << 10}
	for l.Chunk > 32<<10 && size*l.Slots*l.Chunk > total {
		l.Chunk /= 2
	}
	for l.Stream > page && size*(size-1)*l.Stream > total {
		l.Stream /= 2
	}
	for l.Message > page && size*(size-1)*l.Message > total/4 {
		l.Message /= 2
	}
	return l
}

// Check returns an error that names the field that is out of range.
func (l Layout) Check() error {
	for _, f := range []struct {
		name        string
		value, most int
	}{
		{"ranks of a host", l.Size, MaxSize},
		{"bytes of a chunk", l.Chunk, maxChunk},
		{"slots of a ring", l.Slots, maxSlots},
		{"bytes of a stream", l.Stream, maxStream},
	} {
		if f.value < 1 || f.value > f.most {
			return fmt.Errorf("shm: %s: %d, allowed are 1 to %d", f.name, f.value, f.most)
		}
	}
	if l.Output < 0 || l.Output > maxOutput {
		return fmt.Errorf("shm: bytes for results: %d, allowed are 0 to %d", l.Output, maxOutput)
	}
	if l.Message < 0 || l.Message > maxStream || l.Message%page != 0 {
		return fmt.Errorf("shm: bytes of a stream of messages: %d, allowed are multiples of %d up to %d", l.Message, page,
			maxStream)
	}
	if l.Stream%page != 0 {
		return fmt.Errorf("shm: bytes of a stream: %d, allowed are multiples of %d", l.Stream, page)
	}
	return nil
}

// Bytes returns how much memory a region of this layout takes, without its Output.
func (l Layout) Bytes() int { return l.places().end }

// The sets of streams: of reductions, and of messages from rank to rank.
const (
	reductions = iota
	messages
	sets
)

// streamPlaces are the offsets of a set of streams, and how many bytes each has; 0: there is no such set.
type streamPlaces struct{ bells, positions, bytes, ring int }

// places are the offsets of the parts of a region, in bytes.
type places struct {
	bells, names, rings, boxes, slots, end int
	streams                                [sets]streamPlaces
}

func (l Layout) places() (p places) {
	p.bells = page
	p.names = p.bells + l.Size*line
	p.rings = p.names + l.Size*line
	p.boxes = p.rings + l.Size*l.ringBytes()
	p.slots = p.boxes + l.Size*len(topology.Distances(l.Size))*mailboxBytes
	at := p.slots + l.Size*l.Slots*l.slotBytes()
	for set, bytes := range [sets]int{reductions: l.Stream, messages: l.Message} {
		s := &p.streams[set]
		s.bells = at
		if bytes == 0 {
			continue
		}
		s.positions = s.bells + l.Size*line
		s.bytes = roundUp(s.positions+l.Size*l.Size*2*line, page)
		s.ring = bytes
		at = s.bytes + l.Size*(l.Size-1)*bytes
	}
	p.end = at
	return p
}

// ringBytes is the room for the counters of one ring: head and a tail a rank.
func (l Layout) ringBytes() int { return (1 + l.Size) * line }

// slotBytes is the distance between two slots. The line for the header also
// keeps slots from starting in the same set of the cache.
func (l Layout) slotBytes() int { return line + roundUp(l.Chunk, line) }

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
