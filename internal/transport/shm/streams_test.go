package shm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// exchange sends total bytes to every other rank and checks the bytes that come
// from there, in pieces of random size.
func exchange(w *Region, total int) error {
	s, rank, size := w.Streams(), w.rank, w.lay.Size
	rng := rand.New(rand.NewPCG(1, uint64(rank)))
	out, want := make([][]byte, size), make([][]byte, size)
	for r := range size {
		if r == rank {
			continue
		}
		out[r], want[r] = make([]byte, total), make([]byte, total)
		fill(out[r], rank, uint32(r))
		fill(want[r], r, uint32(rank))
	}
	for left := 2 * total * (size - 1); left > 0; {
		work := 0
		for r := range size {
			if r == rank {
				continue
			}
			n := s.Send(r, out[r][:min(len(out[r]), 1+rng.IntN(3*page))])
			out[r] = out[r][n:]
			work += n
			b := s.Peek(r, 1+rng.IntN(2*page))
			if len(b) > len(want[r]) || string(b) != string(want[r][:len(b)]) {
				return fmt.Errorf("rank %d: wrong bytes from rank %d, %d before the end", rank, r, len(want[r]))
			}
			if len(b) > 0 {
				b = b[:1+rng.IntN(len(b))]
			}
			s.Consume(r, len(b))
			want[r] = want[r][len(b):]
			work += len(b)
			if err := s.Err(r); err != nil {
				return err
			}
		}
		left -= work
		if work == 0 {
			s.Sleep(time.Hour)
		}
	}
	return nil
}

func TestStreams(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		all := regions(t, small(size))
		together(t, all, func(w *Region) error { return exchange(w, 100_003) })
		for _, w := range all {
			st := w.Streams().Stats()
			assert.EqualValues(t, 100_003*(size-1), st.SentBytes)
			assert.EqualValues(t, 100_003*(size-1), st.ReceivedBytes)
		}
	}
}

func TestStreamRefusesWhenFull(t *testing.T) {
	w := regions(t, small(2))
	a, b := w[0].Streams(), w[1].Streams()
	data := make([]byte, page+100)
	fill(data, 0, 0)
	require.Equal(t, page, a.Send(1, data))
	require.Zero(t, a.Send(1, data[page:]))
	require.False(t, a.ready())
	require.Equal(t, data[:40], b.Peek(0, 40))
	require.Equal(t, data[:50], b.Peek(0, 50), "a second look shows the same bytes")
	b.Consume(0, 40)
	a.Sleep(time.Hour) // ends, since there is room for what was refused
	require.Equal(t, 40, a.Send(1, data[page:]))
	require.Equal(t, data[40:page], b.Peek(0, 10*page), "up to where the ring wraps")
	b.Consume(0, page-40)
	require.Equal(t, data[page:page+40], b.Peek(0, 10*page))
	b.Consume(0, 40)
	require.Empty(t, b.Peek(0, 10))
	b.Consume(0, 0)
	require.Zero(t, a.Send(1, nil))
}

// TestPeekIsAligned consumes multiples of 8 in a stream with a sender that sends
// other lengths.
func TestPeekIsAligned(t *testing.T) {
	w := regions(t, small(2))
	sent, got := 0, 0
	for got < 5*page {
		sent += w[0].Streams().Send(1, make([]byte, 13))
		b := w[1].Streams().Peek(0, page)
		if len(b) >= 8 {
			require.Zero(t, uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8)
			w[1].Streams().Consume(0, len(b)&^7)
			got += len(b) &^ 7
		}
	}
	require.LessOrEqual(t, got, sent)
}

// TestStreamsSleepEnds would hang, not fail, if a Sleep missed an event.
func TestStreamsSleepEnds(t *testing.T) {
	w := regions(t, small(3))
	a, b := w[0].Streams(), w[1].Streams()
	require.Equal(t, 5, w[2].Streams().Send(1, []byte("later"))) // nobody asks for it
	for i := range 300 {
		pause := time.Duration(i%3) * 100 * time.Microsecond
		done := make(chan struct{})
		go func() {
			defer close(done)
			systest.Pause(pause)
			a.Send(1, []byte{byte(i)})
		}()
		for len(b.Peek(0, 10)) == 0 {
			b.Sleep(time.Hour)
		}
		require.Equal(t, []byte{byte(i)}, b.Peek(0, 10))
		b.Consume(0, 1)
		<-done
	}
	require.False(t, b.ready(), "bytes that were there at the last Sleep are no reason to stay awake")
	b.Wake()
	b.Sleep(time.Hour)
	b.Sleep(time.Millisecond)
}

func TestStreamsDoNotAllocate(t *testing.T) {
	w := regions(t, small(2))
	data := make([]byte, 1000)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		w[0].Streams().Send(1, data)
		w[1].Streams().Consume(0, len(w[1].Streams().Peek(0, 1000)))
		w[1].Streams().Sleep(time.Microsecond)
	}))
}
