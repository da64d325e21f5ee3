// Package sendlink is where users of a host's sending link meet: the groups and communicators of a
// process, and other processes of the same user. They share a page. One word of the page for each
// fabric.Claim says until when it holds, one says which of the two collectives is ahead, and two
// how far the foreground is.
package sendlink

import (
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Words is the shared memory: until when each claim holds, in nanoseconds of a clock. Claims stand
// a cache line apart. The zero value is ready.
type Words struct {
	until  [fabric.Claims]word
	ahead  word
	moved  word // bytes
	moving word // nanoseconds
}

type word struct {
	atomic.Int64
	_ [56]byte
}

// Link is a fabric.Link over words that others use, too.
type Link struct {
	words *Words
	clock func() time.Duration
}

var _ fabric.Link = (*Link)(nil)

// New returns a link. All users of the words have the same clock.
func New(w *Words, clock func() time.Duration) *Link { return &Link{w, clock} }

// Claim implements fabric.Link.
func (l *Link) Claim(c fabric.Claim, d time.Duration) {
	now := l.clock()
	until, most := int64(now+min(d, fabric.MostClaimed)), int64(now+fabric.MostClaimed)
	for w := &l.words.until[c]; ; {
		at := w.Load()
		if at >= until && at <= most || w.CompareAndSwap(at, until) {
			return
		}
	}
}

// Claimed implements fabric.Link. A word that no claim of now can have left counts as none.
func (l *Link) Claimed(c fabric.Claim) time.Duration {
	until := l.words.until[c].Load()
	if until == 0 {
		return 0
	}
	left := time.Duration(until) - l.clock()
	if left < 0 || left > fabric.MostClaimed {
		return 0
	}
	return left
}

// Ahead implements fabric.Link.
func (l *Link) Ahead(bytes int) int {
	for w := &l.words.ahead; ; {
		at := w.Load()
		to := max(-fabric.MostAhead, min(at+int64(bytes), fabric.MostAhead))
		if to == at || w.CompareAndSwap(at, to) {
			return int(to)
		}
	}
}

// Moved implements fabric.Link.
func (l *Link) Moved(bytes uint64, moving time.Duration) (uint64, time.Duration) {
	return uint64(l.words.moved.Add(int64(bytes))), time.Duration(l.words.moving.Add(int64(moving)))
}
