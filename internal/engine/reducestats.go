package engine

import (
	"sync"

	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
)

// ReduceStats count what a Reduce engine did.
type ReduceStats struct {
	reducescatter.Stats
	reducescatter.SwitchConnStats // SentBytes and ReceivedBytes are of streams as well
}

// connBox holds the connection to a switch that is in use, or nil, and what all before have counted.
// The driver sets it.
type connBox struct {
	atomic.Pointer[reducescatter.SwitchConn]
	mu   sync.Mutex
	past reducescatter.SwitchConnStats
}

// set changes the connection in use and returns the one before.
func (b *connBox) set(c *reducescatter.SwitchConn) *reducescatter.SwitchConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.Swap(c)
	if before != nil {
		s := before.Stats()
		b.past.Add(&s)
	}
	return before
}

// stats returns what all connections have counted.
func (b *connBox) stats() reducescatter.SwitchConnStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.past
	if c := b.Load(); c != nil {
		now := c.Stats()
		s.Add(&now)
	}
	return s
}
