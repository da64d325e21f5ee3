package fault

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Switch is a path to a switch that loses, at random, contributions on their way out and all kinds
// of datagrams on their way in. A rank's messages about results, and its polls, are not lost: they
// are small and few.
type Switch struct {
	fabric.Switch
	sink   slotSink
	losses losses
	added  int   // since the last Flush, lost ones included
	lost   []int // the lost ones: how many were added before each
}

// LossySwitch wraps s so that each datagram is lost with probability loss (0 to 1), independently.
// The same seed and the same datagrams lose the same ones.
func LossySwitch(s fabric.Switch, loss float64, seed uint64) *Switch {
	f := &Switch{Switch: s, losses: newLosses(loss, seed, 0x736c6f74)}
	f.sink.losses = &f.losses
	return f
}

// Add implements fabric.Switch.
func (f *Switch) Add(h *wire.Slot, payload []byte) bool {
	if (h.Kind == wire.Contribution || h.Kind == wire.Kept) && f.losses.next() {
		f.lost = append(f.lost, f.added)
	} else if !f.Switch.Add(h, payload) {
		return false
	}
	f.added++
	return true
}

// Flush implements fabric.Switch. A lost datagram counts as sent with the one before it.
func (f *Switch) Flush(stripe int) (int, error) {
	sent, err := f.Switch.Flush(stripe)
	for _, at := range f.lost {
		if at <= sent {
			sent++
		}
	}
	f.added, f.lost = 0, f.lost[:0]
	return sent, err
}

// Receive implements fabric.Switch.
func (f *Switch) Receive(stripe int, hint []byte, budget int, s fabric.SlotSink) (int, error) {
	f.sink.SlotSink = s
	return f.Switch.Receive(stripe, hint, budget, &f.sink)
}

// Stats implements fabric.Switch.
func (f *Switch) Stats() fabric.Stats {
	s := f.Switch.Stats()
	s.Injected += f.losses.count.Load()
	return s
}

// slotSink loses some arrived datagrams.
type slotSink struct {
	fabric.SlotSink
	losses *losses
}

// Slot implements fabric.SlotSink.
func (s *slotSink) Slot(h *wire.Slot, payload []byte) {
	if !s.losses.next() {
		s.SlotSink.Slot(h, payload)
	}
}
