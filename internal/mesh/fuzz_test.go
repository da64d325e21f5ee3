package mesh

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tape is a connection with a peer that plays back recorded bytes, then hangs up, and listens to nothing.
type tape struct {
	net.Conn
	io.Reader
	over chan struct{} // closed at its end
}

func (t tape) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	if err != nil {
		close(t.over) // listen reads no more
	}
	return n, err
}

func (tape) Write(b []byte) (int, error)      { return len(b), nil }
func (tape) Close() error                     { return nil }
func (tape) SetReadDeadline(time.Time) error  { return nil }
func (tape) SetWriteDeadline(time.Time) error { return nil }

// frame returns one as it travels.
func frame(kind, round byte, rank, length int, payload string) []byte {
	return append([]byte{kind, round, byte(rank >> 8), byte(rank), byte(length >> 24), byte(length >> 16),
		byte(length >> 8), byte(length)}, payload...)
}

// FuzzFrames has a neighbour say anything. The mesh must not panic, and report one fault at most.
func FuzzFrames(f *testing.F) {
	f.Add(frame(beat, 0, 1, 0, ""))
	f.Add(append(frame(records, 0, 1, 8, "\x00\x01\x00\x00\x00\x02hi"),
		frame(leave, 0, 1, 16, "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02")...))
	f.Add(append(frame(notice, 0, 1, 6, "\x00\x00\x00\x07hi"), frame(fault, 0, 65535, 24, `{"kind":1,"text":"gone"}`)...))
	f.Add(frame(fault, 0, 1, 1<<31, ""))
	f.Add(append(frame(ask, 0, 1, 9, "question\x02"), frame(answer, 0, 1, 12, "questionpage")...))
	f.Add(append(frame(ask, 0, 1, 7, "quest??"), frame(answer, 0, 2, 3, "que")...))
	f.Fuzz(func(t *testing.T, b []byte) {
		faults := make(chan *Fault, 2)
		over := make(chan struct{})
		m := New(0, 2, map[int]net.Conn{1: tape{Reader: bytes.NewReader(b), over: over}}, time.Hour, time.Hour,
			func(f *Fault) { faults <- f },
			func(rank int, _ Posted) { require.Equal(t, 1, rank) })
		m.Answer(func() []byte { return []byte("mine") })
		select {
		case <-over:
		case <-m.failed:
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no time"))
		known, err := m.Agree(ctx, []byte("mine"))
		if err == nil {
			require.Len(t, known, 2)
		}
		m.Staying()
		m.Close()
		close(faults)
		n := 0
		for range faults {
			n++
		}
		require.LessOrEqual(t, n, 1)
	})
}

// TestBadFault: a frame that holds no fault ends the connection.
func TestBadFault(t *testing.T) {
	for payload, want := range map[string]string{
		"": "unexpected end", "\x01hi": "invalid character", `{"kind":0}`: "kind 0, want 1 to 7", `{"kind":8}`: "kind 8",
		`{"kind":300}`: "cannot unmarshal",
	} {
		_, err := readFault(1, []byte(payload))
		require.ErrorContains(t, err, want, payload)
	}
	f, err := readFault(3, []byte(`{"kind":5,"from":2,"text":"x","more":1}`))
	require.NoError(t, err)
	require.Equal(t, &Fault{Kind: Path, Rank: 3, From: 2, Text: "x"}, f, "what a later release adds is not looked at")
}
