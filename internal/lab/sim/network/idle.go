package network

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Idle is what a fabric does not do in virtual time, for fabrics to embed: nobody sleeps, and the network counts.
type Idle struct{}

// Sleep implements fabric.Sleeper.
func (Idle) Sleep(time.Duration) { panic("network: a fabric in virtual time is asked to sleep") }

// Wake implements fabric.Sleeper.
func (Idle) Wake() {}

// Stats implements fabric.Gather, fabric.Streams and fabric.Switch.
func (Idle) Stats() fabric.Stats { return fabric.Stats{} }

// Close implements fabric.Gather, fabric.Streams and fabric.Switch.
func (Idle) Close() error { return nil }
