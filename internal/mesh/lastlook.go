package mesh

import (
	"errors"
	"net"
	"os"
	"time"
)

// lastLook reads once more, for a moment, when the deadline is over: a process that was kept from
// running for as long, as on a busy machine or with all others of its job, has not heard yet what
// has come meanwhile. It does so once for each call of within: a peer that sends a little at a time
// gains no more.
type lastLook struct {
	net.Conn
	moment time.Duration
	looked bool
}

const maxLastLook = time.Second

// within has Reads from now on end after d, and the moment.
func (l *lastLook) within(d time.Duration) error {
	l.looked = false
	return l.SetReadDeadline(time.Now().Add(d))
}

func (l *lastLook) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && !l.looked && l.SetReadDeadline(time.Now().Add(l.moment)) == nil {
		l.looked = true
		return l.Conn.Read(b)
	}
	return n, err
}
