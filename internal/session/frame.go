package session

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"sync"
	"time"
)

const (
	maxFrame = 64 << 10
	maxEarly = 4 << 10 // of frames of who is not admitted yet
	macSize  = sha256.Size
	macked   = 1 << 31 // in the length: an HMAC follows the object
	// maxWrite bounds a write: frames are few and small, so who leaves no room for one has stopped
	// reading long ago.
	maxWrite = 5 * time.Second
)

// errProof says that a frame is not from who knows the secret.
var errProof = errors.New("the frame does not prove the secret")

// chain makes the HMACs of one direction of a connection. Each covers the
// number of its frame, so that frames cannot be repeated or left out.
type chain struct {
	mac  hash.Hash
	next uint64
}

func newChain(key []byte) *chain { return &chain{mac: hmac.New(sha256.New, key)} }

func (c *chain) sum(body []byte) []byte {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], c.next)
	c.next++
	c.mac.Reset()
	_, _ = c.mac.Write(number[:]) // a hash never fails
	_, _ = c.mac.Write(body)
	return c.mac.Sum(nil)
}

// line is one end of a connection. One goroutine reads, any may write.
type line struct {
	conn    net.Conn
	reader  *bufio.Reader
	timeout time.Duration // of silence, and of a write up to maxWrite
	in, out *chain        // nil: without a secret
	largest int           // object that is received, in bytes

	writing sync.Mutex
	stop    chan struct{} // closed by close
	once    sync.Once
	wg      sync.WaitGroup
}

func newLine(conn net.Conn, timeout time.Duration) *line {
	return &line{conn: conn, reader: bufio.NewReader(conn), timeout: timeout, largest: maxFrame, stop: make(chan struct{})}
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
	l.writing.Lock()
	defer l.writing.Unlock()
	length := uint32(len(body))
	if l.out != nil {
		length |= macked
	}
	frame := append(binary.BigEndian.AppendUint32(nil, length), body...)
	if l.out != nil {
		frame = append(frame, l.out.sum(body)...)
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(min(l.timeout, maxWrite))); err != nil {
		return err
	}
	_, err = l.conn.Write(frame)
	return err
}

// receive reads a frame, which must be complete within the timeout, and
// returns its object and HMAC, which may be empty.
func (l *line) receive(within time.Duration) (body, mac []byte, err error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(l.reader, head[:]); err != nil {
		return nil, nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	size := int(length &^ macked)
	if size > l.largest {
		return nil, nil, fmt.Errorf("session: frame of %d bytes, at most %d are allowed", size, l.largest)
	}
	if length&macked != 0 {
		size += macSize
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(l.reader, frame); err != nil {
		return nil, nil, err
	}
	if length&macked != 0 {
		body, mac = frame[:size-macSize], frame[size-macSize:]
		return body, mac, nil
	}
	return frame, nil, nil
}

// check compares the HMAC of a frame with what it must be.
func (l *line) check(body, mac []byte) error {
	if l.in == nil {
		return nil
	}
	if !hmac.Equal(mac, l.in.sum(body)) {
		return errProof
	}
	return nil
}

// read reads a frame that must be proven, if there is a secret, into v.
func (l *line) read(v any, within time.Duration) error {
	body, mac, err := l.receive(within)
	if err != nil {
		return err
	}
	if err := l.check(body, mac); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// Bounds of the time between pings. A member asks for a timeout, and must not make the node write
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

// next returns the next note that is no ping.
func (l *line) next() (note, error) {
	for {
		var n note
		if err := l.read(&n, l.timeout); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return n, fmt.Errorf("silent for %v (stopped or cut off)", l.timeout)
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
