package baseline

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"
)

// stream is one collective of a run. Its data are pieces, shard by shard, each
// shard cut into segments.
type stream struct {
	schedule schedule
	shards   int // 1 for a Broadcast
	segments int // of a shard
	bytes    int // of a shard
	segment  int // bytes, the last one may have fewer
	reduce   bool
}

func (s *stream) pieces() int { return s.shards * s.segments }

// size returns the bytes of consecutive pieces: one, or whole shards.
func (s *stream) size(first, count int) int64 {
	if s.segments == 1 {
		return int64(count) * int64(s.bytes)
	}
	var n int64
	for i := first; i < first+count; i++ {
		n += int64(min(s.segment, s.bytes-i%s.segments*s.segment))
	}
	return n
}

// holding is the pieces of a stream that a host has. It checks that the host gets every piece once, and sends no piece
// that it does not have.
type holding struct {
	have    bitmap.Bitmap // pieces that it began with or that have arrived; of a Reduce-Scatter only the latter
	terms   []uint16      // of a Reduce-Scatter: ranks summed in what the host has of a piece, itself first
	shard   int           // of a Reduce-Scatter: the host's own
	missing int           // pieces it still has to get to be complete
	done    bool
}

// begin sets what a host has at first: of a Reduce-Scatter its own part of
// every piece, otherwise the pieces [first, first+count).
func (h *holding) begin(s *stream, rank, first, count int) {
	h.have.Reset(s.pieces())
	if s.reduce {
		h.shard, h.missing = rank, s.segments
		h.terms = make([]uint16, s.pieces())
		for i := range h.terms {
			h.terms[i] = 1
		}
		return
	}
	for i := first; i < first+count; i++ {
		h.have.Set(i)
	}
	h.missing = s.pieces() - count
}

// lend checks that the host has the pieces that it wants to send.
func (h *holding) lend(s *stream, m *message) error {
	if s.reduce {
		if m.count != 1 {
			return fmt.Errorf("%d pieces of a Reduce-Scatter in one message; 1 is allowed", m.count)
		}
		m.terms = int32(h.terms[m.first])
		return nil
	}
	for i := range m.count {
		if piece := int(m.first+i) % s.pieces(); !h.have.Has(piece) {
			return fmt.Errorf("piece %d of %d is sent before it is there", piece, s.pieces())
		}
	}
	return nil
}

// take takes in what has arrived.
func (h *holding) take(s *stream, m *message) error {
	for i := range m.count {
		piece := int(m.first+i) % s.pieces()
		if !h.have.Set(piece) {
			return fmt.Errorf("piece %d of %d has come twice", piece, s.pieces())
		}
		if !s.reduce {
			h.missing--
			continue
		}
		h.terms[piece] += uint16(m.terms) // ranks, which Config bounds
		if piece/s.segments == h.shard {
			if int(h.terms[piece]) != s.shards {
				return fmt.Errorf("piece %d sums %d ranks of %d", piece, h.terms[piece], s.shards)
			}
			h.missing--
		}
	}
	return nil
}
