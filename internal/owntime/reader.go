package owntime

import (
	"errors"
	"net"
	"os"
	"time"
)

// Reader reads from a connection on which the peer may be silent for a limit.
type Reader struct {
	net.Conn
	limit, period time.Duration
	waited        time.Duration // since Within
	first         bool          // nothing has come since Within
}

// Within has Reads from now on end with os.ErrDeadlineExceeded when nothing has come for limit. What comes then
// may take as long again, until the next call: a peer that says a little at a time gains no more.
func (r *Reader) Within(limit time.Duration) {
	r.limit, r.period, r.waited, r.first = limit, periodOf(limit), 0, true
}

// Read implements net.Conn. A silence ends with a look that came in time: else what has come while this process
// did not run would not have been seen.
func (r *Reader) Read(b []byte) (int, error) {
	for {
		if !r.first && r.waited >= r.limit {
			return 0, os.ErrDeadlineExceeded
		}
		before := time.Now()
		if err := r.SetReadDeadline(before.Add(r.period)); err != nil {
			return 0, err
		}
		n, err := r.Conn.Read(b)
		took := time.Since(before)
		r.waited += min(took, r.period)
		if n > 0 && r.first {
			r.first, r.waited = false, 0
		}
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if r.waited >= r.limit && took < r.period+r.period/4 {
			return 0, err
		}
	}
}
