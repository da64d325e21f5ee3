package switchd

import (
	"context"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/session"
)

// Timers of a switch as a member of its parent: the defaults of ranks.
const (
	cutoff  = 2 * time.Millisecond
	reorder = 200 * time.Microsecond
	// probeLimit is how long datagrams may take to the parent and back, the first ones lost.
	probeLimit = 2 * time.Second
)

// joinParent makes this switch a member of its parent in the job, and starts the
// job here when the parent says that all ranks are there.
func (j *job) joinParent(ctx context.Context, tenant session.Secret, milliseconds int64) {
	timeout := time.Duration(milliseconds) * time.Millisecond
	up, err := session.Dial(ctx, j.server.cfg.Parent, session.Hello{
		Job: j.key.id, Epoch: j.epoch, Ranks: j.ranks, Child: true, Reproducible: j.reproducible,
		Secret: tenant.Text, Encrypt: j.encrypt, Timeout: timeout, Offload: j.server.cfg.Offload,
		Network: j.server.cfg.Network,
	})
	if err != nil {
		j.end(&session.Error{Text: fmt.Sprintf("parent switch: %v", err)})
		return
	}
	j.mu.Lock()
	if j.ended {
		j.mu.Unlock()
		_ = up.Close(nil) // it is of no use any more
		return
	}
	j.parent, j.width = up, len(up.Sockets())
	j.mu.Unlock()
	close(j.offered)
	terms, number, err := up.Ready(ctx)
	if err == nil {
		err = probe(ctx, up, terms, number, timeout/2) // while the ranks below wait
	}
	close(j.probed)
	if err == nil {
		j.mu.Lock()
		if !j.ended {
			j.numberMembers()
			terms.Cutoff, terms.Reorder = cutoff, reorder
			terms.Queue = min(terms.Queue, j.queue(&terms))
			err = j.start(terms, number)
		}
		j.mu.Unlock()
	}
	if err != nil {
		j.end(parentError(err))
		return
	}
	select {
	case <-up.Lost():
		j.end(parentError(up.Err()))
	case <-j.over:
	}
}

// probe returns once datagrams of all sizes have gone to the parent and back.
func probe(ctx context.Context, up *session.Session, t innetwork.Terms, number int, limit time.Duration) error {
	limit = min(limit, probeLimit)
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer for %v", limit))
	defer stop()
	return up.Probe(ctx, t, number)
}

// parentError is the error for members when the parent is lost or refuses.
func parentError(err error) *session.Error {
	e := asError(err)
	return &session.Error{Text: "parent switch: " + e.Text, Mismatch: e.Mismatch, Between: e.Between}
}
