package switchd

import (
	"context"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/session"
)

// Timers of a switch as a member of its parent: the defaults of ranks.
const (
	cutoff  = 2 * time.Millisecond
	reorder = 200 * time.Microsecond
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
		err = up.Probe(ctx, terms, number, timeout/2) // while the ranks below wait
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

// parentError is the error for members when the parent is lost or refuses.
func parentError(err error) *session.Error {
	e := asError(err)
	return &session.Error{Text: "parent switch: " + e.Text, Mismatch: e.Mismatch, Between: e.Between}
}
