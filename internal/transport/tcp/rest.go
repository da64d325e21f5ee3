package tcp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

var (
	_ fabric.Rester  = (*Streams)(nil)
	_ fabric.Watched = (*Streams)(nil)
	_ fabric.Polled  = (*Streams)(nil)
)

// Rest implements fabric.Rester. Arrivals stay where they are until they are asked for, but the end of a
// stream must be noticed. While sent bytes are not acknowledged, the stream may stall.
func (t *Streams) Rest(awake func()) bool {
	t.mark(t.poller.Ready())
	t.news = false
	for _, s := range t.streams {
		if s == nil || s.err != nil || !s.unacked {
			continue
		}
		t.syscalls.Add(1)
		n, err := unix.IoctlGetInt(s.line.FD, unix.SIOCOUTQ)
		if s.unacked = err == nil && n > 0 || s.line.Pending(); s.unacked {
			return false
		}
	}
	return t.poller.Rest(awake)
}

// Rouse implements fabric.Rester.
func (t *Streams) Rouse() { t.poller.Rouse() }

// Watch implements fabric.Watched.
func (t *Streams) Watch(d time.Duration, awake func()) time.Duration {
	if t.news {
		t.news = false
		return 0
	}
	return t.poller.RestFor(d, awake)
}

// Unwatch implements fabric.Watched.
func (t *Streams) Unwatch() { t.poller.Rouse() }
