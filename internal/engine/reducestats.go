package engine

import (
	"sync"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
)

// ReduceStats count what a Reduce engine did.
type ReduceStats struct {
	reducescatter.Stats
	reducescatter.UplinkStats // SentBytes and ReceivedBytes are of streams as well
}

// uplinkBox holds the uplink in use, or nil, and what all before have counted. The driver sets it.
type uplinkBox struct {
	atomic.Pointer[reducescatter.Uplink]
	mu   sync.Mutex
	past reducescatter.UplinkStats
}

// set changes the uplink in use and returns the one before.
func (b *uplinkBox) set(u *reducescatter.Uplink) *reducescatter.Uplink {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.Swap(u)
	if before != nil {
		s := before.Stats()
		b.past.Add(&s)
	}
	return before
}

// stats returns what all uplinks have counted.
func (b *uplinkBox) stats() reducescatter.UplinkStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.past
	if u := b.Load(); u != nil {
		now := u.Stats()
		s.Add(&now)
	}
	return s
}
