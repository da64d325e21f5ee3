package session

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
)

const (
	maxFrame = 64 << 10
	maxEarly = 4 << 10 // of frames of who is not admitted yet
	// maxWrite bounds a write: frames are few and small, so who leaves no room for one has stopped
	// reading long ago.
	maxWrite = 5 * time.Second
)

// line is one end of a connection. One goroutine reads, any may write.
type line struct {
	conn    net.Conn      // from the proof of a secret on, one that goes in sealed records
	timeout time.Duration // of silence, and of a write up to maxWrite
	largest int           // object that is received, in bytes

	writing sync.Mutex
	stop    chan struct{} // closed by close
	once    sync.Once
	wg      sync.WaitGroup
}

func newLine(conn net.Conn, timeout time.Duration) *line {
	return &line{conn: conn, timeout: timeout, largest: maxFrame, stop: make(chan struct{})}
}

// write sends v as a frame.
func (l *line) write(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("session: frame of %d bytes, at most %d are allowed", len(body), maxFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(min(l.timeout, maxWrite))); err != nil {
		return err
	}
	_, err = l.conn.Write(frame)
	return err
}

// read reads a frame into v. Its first byte must come within so long, as far as this process runs, and the rest within
// as long again.
func (l *line) read(v any, within time.Duration) error {
	conn := owntime.Reader{Conn: l.conn}
	conn.Within(within)
	var head [4]byte
	if _, err := io.ReadFull(&conn, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(l.largest) {
		return fmt.Errorf("session: frame of %d bytes, at most %d are allowed", size, l.largest)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(&conn, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// Bounds of the time between pings. A member asks for a timeout, and must not make the switch write
// often.
const (
	minInterval = 250 * time.Millisecond
	maxInterval = time.Second
)

// interval is the time between pings to a side that waits for timeout.
func interval(timeout time.Duration) time.Duration {
	return min(max(timeout/4, minInterval), maxInterval)
}

// ping shows the other side that this one is alive until the line is hung up.
func (l *line) ping() {
	l.wg.Go(func() {
		t := time.NewTicker(interval(l.timeout))
		defer t.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-t.C:
				if l.write(note{Kind: ping}) != nil {
					return // the reading side notices, and tells why
				}
			}
		}
	})
}

// silence is for how long a side that waits for timeout hears nothing before the other one counts as lost: that one may
// be stopped for all of timeout, with a ping due before that and one after.
func silence(timeout time.Duration) time.Duration { return timeout + 2*interval(timeout) }

// next returns the next note that is no ping.
func (l *line) next() (note, error) {
	for {
		var n note
		if err := l.read(&n, silence(l.timeout)); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return n, fmt.Errorf("silent for %v (stopped or cut off)", silence(l.timeout))
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return n, errors.New("the connection closed without a farewell (the process ended)")
			}
			return n, err
		}
		if n.Kind != ping {
			return n, nil
		}
	}
}

// close closes the connection; what was written is still delivered.
func (l *line) close() {
	l.once.Do(func() {
		close(l.stop)
		_ = l.conn.Close() // nobody can do anything about it
	})
	l.wg.Wait()
}
