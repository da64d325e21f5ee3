package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// probePause is the time between two probes of a stripe that does not answer.
const probePause = 20 * time.Millisecond

// Probe polls the switch until it has answered on every stripe: that a session is
// open does not say that datagrams pass. It is for before an engine has the
// uplink. If ctx ends first, the error names a port that did not answer and the cause.
func (u *Uplink) Probe(ctx context.Context) error {
	var asked time.Duration // when polls went last, 0: never
	for slices.Contains(u.granted, false) {
		if ctx.Err() != nil {
			port := u.cfg.Sockets[slices.Index(u.granted, false)].Peer().Port()
			return fmt.Errorf("the switch's data path does not answer (is UDP to port %d blocked?): %w", port, context.Cause(ctx))
		}
		u.now = now()
		if asked == 0 || u.now-asked >= probePause {
			asked = u.now
			u.poll()
		}
		u.poller.Wait(probePause - (u.now - asked))
		for i := range u.cfg.Sockets {
			u.receive(i)
		}
	}
	return nil
}

// poll asks for an allowance on the stripes where none has come.
func (u *Uplink) poll() {
	st := wire.SlotStatus{Have: u.cfg.Terms.First, Next: u.cfg.Terms.First, Poll: true}
	for i, granted := range u.granted {
		if granted {
			continue
		}
		h := wire.Slot{Kind: wire.Status, Stripe: uint8(i), Member: uint16(u.cfg.Number), Job: u.cfg.Terms.Job} //nolint:gosec // bounded
		u.add(&h, u.body[:st.Put(u.body[:])])
		u.flush(i)
	}
}
