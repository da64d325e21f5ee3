package mesh

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// beats is how many of them a rank gives its neighbours within the timeout.
const beats = 8

// period is the time between two beats.
func (m *Mesh) period() time.Duration { return max(m.timeout/beats, 10*time.Millisecond) }

// SilenceFor is for how long a rank is not heard before it counts as dead: for all of timeout, in which a rank may be
// stopped, for a beat that was due when it was, and for a moment to hear the next one.
func SilenceFor(timeout time.Duration) time.Duration { return timeout + 2*timeout/beats }

// StallFor is for how long what was sent on a path may go without an acknowledgement, or a connection there without
// coming about, before the path counts as broken. It is longer than a dead rank is silent: of that the mesh is to say
// so.
func StallFor(timeout time.Duration) time.Duration { return timeout + timeout/2 }

// beat shows a neighbour that this rank is alive. Its goroutine does nothing else.
func (m *Mesh) beat(e *edge) {
	defer m.wg.Done()
	period := m.period()
	t := time.NewTimer(sys.NextBeat(period))
	defer t.Stop()
	for {
		if m.write(e, beat, 0, m.rank, nil) != nil {
			return // listen notices, and tells why
		}
		select {
		case <-t.C:
			t.Reset(sys.NextBeat(period))
		case <-m.stop:
			return
		}
	}
}

// listen reads a neighbour's frames until it leaves, fails, or falls silent.
func (m *Mesh) listen(e *edge) {
	defer m.wg.Done()
	conn := &owntime.Reader{Conn: e.conn}
	r := bufio.NewReader(conn)
	silence := max(m.joining, SilenceFor(m.timeout))
	for ; ; silence = SilenceFor(m.timeout) {
		conn.Within(silence)
		if err := m.next(e, r); err != nil {
			m.broken(e, err, silence)
			return
		}
	}
}

// next reads a frame.
func (m *Mesh) next(e *edge, r *bufio.Reader) error {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	e.markAlive()
	n := binary.BigEndian.Uint32(head[4:])
	if n > maxPayload {
		return fmt.Errorf("frame of %d bytes, at most %d are allowed", n, maxPayload)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return err
	}
	return m.handle(e, head[0], head[1], int(binary.BigEndian.Uint16(head[2:])), payload)
}

// broken ends an edge: because all ranks leave, by our own Close, or as a fault.
func (m *Mesh) broken(e *edge, err error, silence time.Duration) {
	m.mu.Lock()
	quiet := m.closing || m.allLeave()
	over := quiet || m.first != nil
	m.mu.Unlock()
	silent := errors.Is(err, os.ErrDeadlineExceeded)
	if silent || over && errors.Is(err, io.EOF) {
		_ = e.conn.Close() // who writes to a silent peer waits for it, and a peer that has hung up does
	}
	if quiet {
		return
	}
	m.Report(&Fault{
		Kind: Dead, Rank: e.peer, Text: fmt.Sprintf("%s (seen by rank %d)", describeBreak(err, silence), m.rank),
	})
}

// describeBreak says what an error of a connection tells of the peer.
func describeBreak(err error, silence time.Duration) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("silent for %v: it was stopped or cut off", silence)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
		// A reset is the end of a process that has not read all that was sent to it.
		return "its connection closed without a farewell: its process ended"
	}
	return "its connection failed: " + err.Error()
}
