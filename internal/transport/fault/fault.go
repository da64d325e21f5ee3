// Package fault wraps a fabric so that it loses datagrams on purpose: for tests, and for
// MCAST_LOSS, with which people see what loss costs them.
package fault

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Gather is a fabric that drops received multicast chunks at random.
// Control messages and repairs, which travel on a reliable path, are not touched.
type Gather struct {
	fabric.Gather
	sink   sink
	losses losses
}

// losses are datagrams that are lost at random, independently, and how many were.
type losses struct {
	probability float64
	rng         *rand.Rand
	count       atomic.Uint64
}

func newLosses(probability float64, seed, stream uint64) losses {
	return losses{probability: probability, rng: rand.New(rand.NewPCG(seed, stream))}
}

// next decides about the next datagram, and counts it if it is lost.
func (l *losses) next() (lost bool) {
	if lost = l.rng.Float64() < l.probability; lost {
		l.count.Add(1)
	}
	return lost
}

// Lossy wraps g so that each chunk is lost with probability loss (0 to 1), independently.
// The same seed and the same arrivals lose the same chunks. It is not for a Lossless
// fabric, which repairs no loss.
func Lossy(g fabric.Gather, loss float64, seed uint64) *Gather {
	f := &Gather{Gather: g, losses: newLosses(loss, seed, 0x6d63617374)}
	f.sink.losses = &f.losses
	return f
}

// Poll implements fabric.Gather.
func (f *Gather) Poll(s fabric.Sink, budget int) (n int, more bool) {
	f.sink.Sink = s
	return f.Gather.Poll(&f.sink, budget)
}

// Stats implements fabric.Gather.
func (f *Gather) Stats() fabric.Stats {
	s := f.Gather.Stats()
	s.Injected += f.losses.count.Load()
	return s
}

// sink drops some of the chunks that arrive.
type sink struct {
	fabric.Sink
	losses *losses
}

// Accept implements fabric.Sink.
func (s *sink) Accept(h *wire.Data, n int) (dst []byte, verdict fabric.Verdict, stream bool) {
	if h.IsMulticast() && s.losses.next() {
		return nil, fabric.Drop, false
	}
	return s.Sink.Accept(h, n)
}
