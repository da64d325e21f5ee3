package world

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
)

// connected runs f in a bubble with both ends of a stream between hosts 0 and 1.
func connected(t *testing.T, f func(t *testing.T, w *World, a, b net.Conn), faults ...Fault) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Ranks: 2, Delay: time.Millisecond, Rate: 1e8, MTU: 1500, Queue: 16}, faults...)
		ln, err := w.Host(1).Listen(t.Context(), "tcp", ":80")
		require.NoError(t, err)
		a, err := w.Host(0).Dial(t.Context(), "tcp", "10.0.0.2:80", hostnet.Dialing{})
		require.NoError(t, err)
		b, err := ln.Accept()
		require.NoError(t, err)
		f(t, w, a, b)
		_ = a.Close()
		_ = b.Close()
		_ = ln.Close()
	})
}

// TestStreamRepeatsWhatIsLost sends more than a stream holds over a path that loses one of five packets.
func TestStreamRepeatsWhatIsLost(t *testing.T) {
	connected(t, func(t *testing.T, w *World, a, b net.Conn) {
		sent := bytes.Repeat([]byte("0123456789"), 100_000)
		go func() {
			for at := 0; at < len(sent); at += 10_000 {
				_, err := a.Write(sent[at : at+10_000])
				require.NoError(t, err)
			}
			require.NoError(t, a.Close())
		}()
		got, err := io.ReadAll(b)
		require.NoError(t, err, "the end follows what was written")
		require.True(t, bytes.Equal(sent, got))
		require.Positive(t, w.Lost())
	}, Fault{What: Drop, From: Anybody, To: Anybody, Flow: Meeting, At: 3 * time.Millisecond, Share: 0.2})
}

// TestStreamWaitsForRoom has nobody read: a writer waits, by its deadline, and goes on when there is room.
func TestStreamWaitsForRoom(t *testing.T) {
	connected(t, func(t *testing.T, _ *World, a, b net.Conn) {
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := a.Write(make([]byte, 2*streamMax))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, streamMax, n)
		require.Nil(t, a.(*end).stalled(time.Nanosecond), "who does not read acknowledges all the same")
		require.NoError(t, a.SetWriteDeadline(time.Time{}))
		go func() { _, _ = io.CopyN(io.Discard, b, 2*streamMax) }()
		_, err = a.Write(make([]byte, streamMax))
		require.NoError(t, err)
	})
}

// TestStreamOnANarrowPath passes small messages until a large one stands before them.
func TestStreamOnANarrowPath(t *testing.T) {
	connected(t, func(t *testing.T, _ *World, a, b net.Conn) {
		_, err := a.Write(make([]byte, 100))
		require.NoError(t, err)
		_, err = io.ReadFull(b, make([]byte, 100))
		require.NoError(t, err)
		_, err = a.Write(make([]byte, 2000))
		require.NoError(t, err, "the kernel has it")
		_, err = a.Write(make([]byte, 100))
		require.NoError(t, err)
		require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NotNil(t, a.(*end).stalled(time.Minute))
		require.Equal(t, 1448, a.(*end).stalled(time.Minute).Segment)
	}, Fault{What: Drop, From: 0, To: 1, Flow: Every, Least: 1400})
}

// TestStreamEnds in each way that a process can end it.
func TestStreamEnds(t *testing.T) {
	connected(t, func(t *testing.T, _ *World, a, b net.Conn) {
		_, err := a.Write([]byte{1})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, b.Close(), "with a byte unread")
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
	connected(t, func(t *testing.T, w *World, a, _ net.Conn) {
		w.Host(1).Kill(false)
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = w.Host(0).Dial(context.Background(), "tcp", "10.0.0.2:80", hostnet.Dialing{})
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
	connected(t, func(t *testing.T, w *World, a, _ net.Conn) {
		w.Host(1).Kill(true)
		w.Host(0).Acknowledged(a, time.Minute)
		_, err := a.Write([]byte{1})
		require.NoError(t, err)
		start := time.Now()
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
		require.InDelta(t, time.Minute, time.Since(start), float64(time.Second))
		_, err = w.Host(0).Dial(context.Background(), "tcp", "10.0.0.2:80", hostnet.Dialing{Timeout: time.Minute})
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
	})
	connected(t, func(t *testing.T, w *World, a, b net.Conn) {
		w.Host(1).Stop(time.Minute)
		_, err := a.Write([]byte{1})
		require.NoError(t, err)
		start := time.Now()
		_, err = b.Read(make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(start), "it goes on then")
	})
}

// TestNoDescriptors has a process that can open none for a while.
func TestNoDescriptors(t *testing.T) {
	connected(t, func(t *testing.T, w *World, _, _ net.Conn) {
		_, err := w.Host(1).Dial(t.Context(), "tcp", "10.0.0.1:80", hostnet.Dialing{})
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		time.Sleep(time.Second)
		_, err = w.Host(1).Dial(t.Context(), "tcp", "10.0.0.1:80", hostnet.Dialing{})
		require.ErrorIs(t, err, syscall.EMFILE)
		_, err = w.Host(1).Listen(t.Context(), "tcp", ":81")
		require.ErrorIs(t, err, syscall.EMFILE)
	}, Fault{What: Descriptors, From: 1, To: Anybody, At: time.Second, For: time.Minute})
}
