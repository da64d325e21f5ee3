package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// handshake is the final one of an operation: a rank gives its buffer back only when its right
// neighbour, which may still ask for lost chunks, has every chunk (Khalilov et al., SC24, III-C).
type handshake struct {
	sent  bool // the left neighbour was notified that this rank has every chunk
	right bool // the right neighbour has every chunk
}

// send tells the left neighbour, once, that this rank has every chunk.
func (h *handshake) send(l *layout, out *outbox) {
	if l.mode.handshake && !h.sent {
		h.sent = true
		out.send(l.topo.Left(), l.control(wire.Done))
	}
}

// over reports whether an operation that this rank has completely received may end.
func (h *handshake) over(l *layout) bool { return !l.mode.handshake || h.right }
