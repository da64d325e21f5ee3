package record

import (
	"errors"

	"golang.org/x/sys/unix"
)

// errForged says that a record is none that the other end has sealed, or not the next.
var errForged = errors.New("what came is not what the other end has sent: somebody on the path has changed it")

// guard is both directions of a connection, with the buffers between the stream and its records.
type guard struct {
	out     half
	sealed  []byte // sealed[sent:] is not sent yet
	sent    int
	broken  error // why nothing more can be sent
	in      half
	arrived []byte // arrived[taken:filled] are records that are not opened yet
	taken   int
	filled  int
	spare   [maxPlain]byte
	plain   []byte // of spare: opened, not read yet
	failed  error  // why nothing more can be read
}

func newGuard(s Secrets) (*guard, error) {
	g := &guard{sealed: make([]byte, 0, maxRecord), arrived: make([]byte, 4*maxRecord)}
	var err error
	if g.out, err = newHalf(s.Out); err != nil {
		return nil, err
	}
	g.in, err = newHalf(s.In)
	return g, err
}

// pending reports whether there are records that are not sent yet.
func (g *guard) pending() bool { return g.sent < len(g.sealed) }

// buffered reports whether there is something to read, or to fail by, without asking the connection.
func (g *guard) buffered() bool {
	if len(g.plain) > 0 || g.failed != nil {
		return true
	}
	_, whole, err := length(g.arrived[g.taken:g.filled])
	return whole || err != nil
}

// flush sends records by send, which takes what there is room for.
func (g *guard) flush(send func([]byte) (int, error)) error {
	for g.pending() && g.broken == nil {
		n, err := send(g.sealed[g.sent:])
		g.sent += n
		if errors.Is(err, unix.EAGAIN) {
			return err
		}
		g.broken = err
	}
	g.sealed, g.sent = g.sealed[:0], 0
	return g.broken
}

// write seals b and sends it; what of that has no room stays pending. It returns how many bytes are sealed.
func (g *guard) write(b []byte, send func([]byte) (int, error)) (n int, err error) {
	for err = g.flush(send); err == nil && n < len(b); err = g.flush(send) {
		next := b[n:min(n+maxPlain, len(b))]
		if g.sealed, err = g.out.seal(g.sealed, next); err != nil {
			g.broken = err
			return n, err
		}
		n += len(next)
	}
	if n > 0 && errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return n, err
}

// read opens arrived records into b, as far as there is room, and asks the connection by receive for more until that
// has no more at the moment. An error that ends the stream is returned when all before it is read.
func (g *guard) read(b []byte, receive func([]byte) (int, error)) (n int, err error) {
	for drained := false; n < len(b) && (g.failed == nil || len(g.plain) > 0); {
		if len(g.plain) > 0 {
			k := copy(b[n:], g.plain)
			g.plain, n = g.plain[k:], n+k
			continue
		}
		records := g.arrived[g.taken:g.filled]
		size, whole, err := length(records)
		switch {
		case err != nil:
			g.failed = err
		case whole && size-headSize-tagSize <= len(b)-n:
			var plain []byte
			plain, g.failed = g.in.open(b[n:n], records[:size])
			g.taken, n = g.taken+size, n+len(plain)
		case whole:
			g.plain, g.failed = g.in.open(g.spare[:0], records[:size])
			g.taken += size
		case drained:
			if n == 0 {
				return 0, unix.EAGAIN
			}
			return n, nil
		default:
			drained = g.fill(receive)
		}
	}
	if n == 0 && len(b) > 0 && !errors.Is(g.failed, errEnd) {
		return 0, g.failed
	}
	return n, nil
}

// errEnd says that the other end has closed the connection.
var errEnd = errors.New("end of the connection")

// room returns the memory for the next arrivals, behind arrived records that are not opened yet.
func (g *guard) room() []byte {
	g.filled = copy(g.arrived, g.arrived[g.taken:g.filled])
	g.taken = 0
	return g.arrived[g.filled:]
}

// fill receives once, and reports whether there was less than room for.
func (g *guard) fill(receive func([]byte) (int, error)) (drained bool) {
	room := g.room()
	n, err := receive(room)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return true
	case err != nil:
		g.failed = err
	case n == 0:
		g.failed = errEnd
	}
	g.filled += n
	return n < len(room)
}
