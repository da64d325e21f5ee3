package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// slots are the chunks of a ring. A slot holds a wire.Data header, the
// payload's length (u32, little-endian) and, in the next cache line, the payload.
type slots struct {
	mem    []byte
	chunk  int // payload bytes at most
	stride int // bytes from slot to slot
	count  uint64
}

func (s *slots) slot(at uint64) []byte {
	return s.mem[int(at%s.count)*s.stride:][:s.stride]
}

func (s *slots) put(at uint64, h *wire.Data, payload []byte) {
	b := s.slot(at)
	h.Put(b)
	binary.LittleEndian.PutUint32(b[wire.DataSize:], uint32(len(payload)))
	copy(b[line:], payload)
}

// get reads the header and returns the payload, which stays in the slot. The
// length is read once: what a peer does to it afterwards has no effect.
func (s *slots) get(at uint64, h *wire.Data) ([]byte, error) {
	b := s.slot(at)
	if err := h.Get(b); err != nil {
		return nil, fmt.Errorf("chunk %d: %w", at, err)
	}
	n := binary.LittleEndian.Uint32(b[wire.DataSize:])
	if int(n) > s.chunk {
		return nil, fmt.Errorf("chunk %d: %d bytes, allowed are 0 to %d", at, n, s.chunk)
	}
	return b[line : line+int(n)], nil
}
