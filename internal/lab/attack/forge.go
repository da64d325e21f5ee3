package attack

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Way is how a datagram is forged from one that was recorded.
type Way int

// The ways.
const (
	Replay    Way = iota // as it was
	Flip                 // with one bit changed, anywhere
	Recount              // with another counter, the tag as it was
	Replace              // another payload under the same header, the tag as it was
	Rename               // as if another rank had sent it, and from that rank's address
	Renumber             // as a chunk of an operation to come, or of one that is over
	Move                 // as another chunk of its shard
	Resize               // as of a shard of another size, or of another collective
	Truncate             // shorter, down to nothing
	Extend               // longer
	Untagged             // as one that nobody has tagged: the payload follows the header
	Invent               // a header of chance that a filter takes, and nothing that was recorded
	waysCount            // how many there are
)

// String names a way in reports.
func (w Way) String() string {
	return [...]string{"replay", "flip", "recount", "replace", "rename", "renumber", "move", "resize", "truncate",
		"extend", "untagged", "invent"}[w]
}

// datagram is one that was recorded, or is to be sent.
type datagram struct {
	bytes []byte
	root  int // the rank that sent it, or that it names as its sender
}

// forge makes a datagram of a recorded one, in memory of its own. ranks are how many may be named.
func forge(r *rand.Rand, way Way, of datagram, ranks int) datagram {
	b := append([]byte{}, of.bytes...)
	root := of.root
	head := b[:wire.DataSize]
	add := func(at int, n uint32) { binary.BigEndian.PutUint32(head[at:], binary.BigEndian.Uint32(head[at:])+n) }
	switch way {
	case Replay, waysCount:
	case Flip:
		bit := r.IntN(8 * len(b))
		b[bit/8] ^= 1 << (bit % 8)
	case Recount:
		if len(b) >= sealed {
			scramble(r, b[wire.DataSize+r.IntN(8):wire.DataSize+8])
		}
	case Replace:
		scramble(r, b[min(len(b), sealed):])
	case Rename:
		root = r.IntN(ranks)
		binary.BigEndian.PutUint16(head[12:], uint16(root))
	case Renumber:
		add(16, uint32(r.IntN(9)-4))
	case Move:
		add(20, uint32(r.IntN(9)-4))
	case Resize:
		if r.IntN(2) == 0 {
			add(24, uint32(r.IntN(5)-2))
		} else {
			head[2] = head[2]&0xf0 | byte(1+r.IntN(3))
		}
	case Truncate:
		b = b[:r.IntN(len(b))]
	case Extend:
		b = append(b, make([]byte, 1+r.IntN(64))...)
	case Untagged:
		copy(b[wire.DataSize:], b[min(len(b), sealed):])
	case Invent:
		scramble(r, b[16:])
	}
	return datagram{b, root}
}

// sealed is where the payload of a sealed datagram begins.
const sealed = wire.DataSize + seal.MaxSize

func scramble(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}
