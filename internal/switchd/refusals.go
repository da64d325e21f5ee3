package switchd

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusals writes to the log which strangers are refused, and why. Anybody who reaches the switch can cause such lines,
// so there is one in linesTime, with the number of others since the last.
type refusals struct {
	mu      sync.Mutex
	written time.Time
	others  int
}

func (r *refusals) note(log *slog.Logger, from net.Addr, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.written) < linesTime {
		r.others++
		return
	}
	log.Info("no member", "from", from.String(), "error", err, "others", r.others)
	r.written, r.others = now, 0
}
