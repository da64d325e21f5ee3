package record

import (
	"bytes"
	"encoding/hex"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/coredump/coredumptest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func secret(first byte) []byte {
	s := make([]byte, SecretSize)
	for i := range s {
		s[i] = first + byte(i)
	}
	return s
}

func guards(t require.TestingT) (a, b *guard) {
	a, err := newGuard(Secrets{secret(1), secret(101)})
	require.NoError(t, err)
	b, err = newGuard(Secrets{secret(101), secret(1)})
	require.NoError(t, err)
	return a, b
}

// wire is a direction between two guards, with so much room at the moment.
type wire struct {
	bytes []byte
	room  int
	ended bool
}

func (w *wire) send(b []byte) (int, error) {
	n := min(len(b), w.room)
	w.bytes, w.room = append(w.bytes, b[:n]...), w.room-n
	if n == 0 {
		return 0, unix.EAGAIN
	}
	return n, nil
}

func (w *wire) receive(b []byte) (int, error) {
	n := copy(b, w.bytes)
	w.bytes = w.bytes[n:]
	if n == 0 && !w.ended {
		return 0, unix.EAGAIN
	}
	return n, nil
}

// A stream written in any pieces, with any room between, is read as it was written, in any pieces; then the stream
// ends.
func TestStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := guards(t)
		data := make([]byte, rapid.IntRange(0, 5*maxPlain).Draw(t, "bytes"))
		for i := range data {
			data[i] = byte(i * 2654435761 >> 11)
		}
		w := &wire{}
		var got []byte
		left := data
		for len(got) < len(data) {
			w.room += rapid.IntRange(1, 2*maxRecord).Draw(t, "room")
			n, err := a.write(left[:rapid.IntRange(0, len(left)).Draw(t, "write")], w.send)
			if err != nil {
				require.ErrorIs(t, err, unix.EAGAIN)
				require.True(t, a.pending())
			}
			left = left[n:]
			room := make([]byte, rapid.IntRange(1, 2*maxPlain).Draw(t, "read"))
			n, err = b.read(room, w.receive)
			if err != nil {
				require.ErrorIs(t, err, unix.EAGAIN)
				require.False(t, b.buffered())
			} else if n < len(room) {
				require.False(t, b.buffered())
			}
			got = append(got, room[:n]...)
		}
		require.True(t, bytes.Equal(data, got))
		w.ended = true
		n, err := b.read(make([]byte, 1), w.receive)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// Records that are changed, left out, sent again, swapped, cut short, of the other direction or of nobody end the
// stream; what was read until then is what was written.
func TestChangedRecords(t *testing.T) {
	const records = 4
	one := headSize + 100 + tagSize
	for name, change := range map[string]func(w []byte, other []byte) []byte{
		"a bit of the length": func(w, _ []byte) []byte { w[one+1] ^= 4; return w },
		"a bit of what is in": func(w, _ []byte) []byte { w[one+headSize+50] ^= 1; return w },
		"a bit of the tag":    func(w, _ []byte) []byte { w[2*one-1] ^= 128; return w },
		"one left out":        func(w, _ []byte) []byte { return append(w[:one:one], w[2*one:]...) },
		"one again":           func(w, _ []byte) []byte { return append(w[:one:one], w...) },
		"swapped": func(w, _ []byte) []byte {
			return bytes.Join([][]byte{w[:one], w[2*one : 3*one], w[one : 2*one], w[3*one:]}, nil)
		},
		"reflected":    func(w, other []byte) []byte { return append(w[:one:one], other[one:2*one]...) },
		"no record":    func(w, _ []byte) []byte { return append(w[:one:one], "GET / HTTP/1.1\r\n\r\n"...) },
		"an empty one": func(w, _ []byte) []byte { return append(w[:one:one], make([]byte, 200)...) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := guards(t)
			there, back := &wire{room: 1 << 20}, &wire{room: 1 << 20}
			for i := range records {
				for g, w := range map[*guard]*wire{a: there, b: back} {
					_, err := g.write(bytes.Repeat([]byte{byte(i)}, 100), w.send)
					require.NoError(t, err)
				}
			}
			there.bytes = change(there.bytes, back.bytes)
			room := make([]byte, 1000)
			n, err := b.read(room, there.receive)
			require.NoError(t, err)
			require.Equal(t, make([]byte, 100), room[:n])
			_, err = b.read(room, there.receive)
			require.ErrorIs(t, err, errForged)
			_, err = b.read(room, there.receive)
			require.ErrorIs(t, err, errForged, "for good")
		})
	}
}

// No nonce is used twice: a key that has sealed its share is replaced at both ends at the same record.
func TestKeysAreReplaced(t *testing.T) {
	a, b := guards(t)
	a.out.number, b.in.number = perKey-1, perKey-1
	w := &wire{room: 1 << 20}
	key := a.out.aead
	for range 3 {
		_, err := a.write([]byte("over"), w.send)
		require.NoError(t, err)
		room := make([]byte, 4)
		_, err = b.read(room, w.receive)
		require.NoError(t, err)
		require.Equal(t, "over", string(room))
	}
	require.NotEqual(t, key, a.out.aead)
	require.EqualValues(t, 2, a.out.number)
}

// Neither the first key of a direction nor the next one is in core files.
func TestKeysAreInNoCore(t *testing.T) {
	var h half
	coredumptest.By(t, func() {
		var err error
		h, err = newHalf(secret(1))
		require.NoError(t, err)
	})
	h.number = perKey
	coredumptest.By(t, func() {
		_, err := h.next()
		require.NoError(t, err)
	})
}

// The bytes are of another implementation of HKDF and AES-GCM: ranks of different builds have to agree.
func TestVector(t *testing.T) {
	a, _ := guards(t)
	w := &wire{room: 1 << 20}
	for _, s := range []string{"hello", "world"} {
		_, err := a.write([]byte(s), w.send)
		require.NoError(t, err)
	}
	require.Equal(t, vector, hex.EncodeToString(w.bytes))
}

// A Conn waits, a Line does not. Where a Line goes on in place of a Conn, no bytes buffered between them are lost.
func TestConnBecomesLine(t *testing.T) {
	a, b := systest.Pair(t)
	ca, err := New(a, Secrets{secret(1), secret(101)})
	require.NoError(t, err)
	cb, err := New(b, Secrets{secret(101), secret(1)})
	require.NoError(t, err)
	defer cb.Close()
	go func() { _, _ = ca.Write([]byte("one, two")) }()
	require.NoError(t, cb.SetDeadline(systest.Deadline()))
	first := make([]byte, 5)
	_, err = io.ReadFull(cb, first)
	require.NoError(t, err)
	require.Equal(t, "one, ", string(first))
	conns := map[int]net.Conn{3: cb}
	line, err := Take(conns, 3)
	require.NoError(t, err)
	again, err := Take(conns, 3)
	require.NoError(t, err)
	require.Equal(t, line.FD, again.FD)
	require.True(t, line.Buffered())
	rest := make([]byte, 10)
	n, err := line.Receive(rest)
	require.NoError(t, err)
	require.Equal(t, "two", string(rest[:n]))
	_, err = line.Receive(rest)
	require.ErrorIs(t, err, unix.EAGAIN)
	n, err = line.Send([]byte("answer"))
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.NoError(t, ca.SetDeadline(systest.Deadline()))
	answer := make([]byte, 6)
	_, err = io.ReadFull(ca, answer)
	require.NoError(t, err)
	require.Equal(t, "answer", string(answer))
	require.NoError(t, ca.CloseWrite())
	systest.Eventually(t, func() bool {
		n, err := line.Receive(rest)
		return n == 0 && err == nil
	})
	require.NoError(t, ca.Close())
}

func TestNothingIsAllocated(t *testing.T) {
	a, b := guards(t)
	w := &wire{bytes: make([]byte, 0, 1<<20)}
	data, room := make([]byte, 40000), make([]byte, 40000)
	start := w.bytes
	send, receive := w.send, w.receive
	require.Zero(t, testing.AllocsPerRun(20, func() {
		w.bytes, w.room = start, 1<<20
		if n, err := a.write(data, send); n != len(data) || err != nil {
			t.Fatal(n, err)
		}
		if n, err := b.read(room, receive); n != len(room) || err != nil {
			t.Fatal(n, err)
		}
	}))
}

const vector = "0015e4342a4737933b6a8b1284f4dcc238db1b859d2b870015cef76da150065a6f3db625dcbfe0148c645a6ae407"
