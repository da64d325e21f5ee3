package session

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestAMemberThatNeverAnswers is held no longer than Accept was told, even if it asks for more.
func TestAMemberThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer func() { _ = there.Close() }()
		l := newLine(there, systest.Limit)
		end := make(chan error, 1)
		go func() {
			p, err := Accept(here, nil, 200*time.Millisecond)
			if err == nil {
				err = p.Offer([]uint16{9})
			}
			end <- err
		}()
		require.NoError(t, l.read(&greeting{}, systest.Limit))
		require.NoError(t, l.write(Request{Version: Version, Ranks: 2, Milliseconds: maxTimeout.Milliseconds()}))
		require.NoError(t, l.read(&offer{}, systest.Limit))
		start := time.Now()
		require.ErrorIs(t, <-end, os.ErrDeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(start)) //nolint:forbidigo // in a bubble
	})
}

// TestStrangersAreHeardBriefly claims frames of lengths that are fit for members alone.
func TestStrangersAreHeardBriefly(t *testing.T) {
	for length, refused := range map[uint32]bool{maxEarly: false, maxEarly + 1: true, maxFrame: true, 1<<31 | 16: true} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			end := make(chan error, 1)
			go func() {
				_, err := Accept(here, nil, 200*time.Millisecond)
				end <- err
			}()
			l := newLine(there, systest.Limit)
			require.NoError(t, l.read(&greeting{}, systest.Limit))
			_, err := there.Write(binary.BigEndian.AppendUint32(nil, length))
			require.NoError(t, err)
			err = <-end
			if refused {
				require.ErrorContains(t, err, "at most 4096")
			} else {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded) // it waits for the rest
			}
			l.close()
		})
	}
}

// TestDialEndsBetweenFrames cancels while the member turns from one frame to
// the next, at many moments of that turn.
func TestDialEndsBetweenFrames(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var nodes sync.WaitGroup
	defer nodes.Wait()
	defer func() { _ = ln.Close() }()
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		nodes.Go(func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			l := newLine(conn, systest.Limit)
			_ = l.write(greeting{Magic: magic, Version: Version})
			for range i * 10 {
				runtime.Gosched()
			}
			cancel()
			_, _ = io.Copy(io.Discard, conn) // until the member hangs up
			l.close()
		})
		_, err := Dial(ctx, ln.Addr().String(), Hello{Ranks: 1, Timeout: systest.Limit})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
}

func TestPingsAreFew(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		minTimeout: 250 * time.Millisecond, time.Second: 250 * time.Millisecond, 3 * time.Second: 750 * time.Millisecond,
		maxTimeout: time.Second,
	} {
		require.Equal(t, want, interval(timeout))
		require.LessOrEqual(t, 2*want, timeout)
	}
}

// TestAHurry waits longer than was asked for, rather than be refused.
func TestAHurry(t *testing.T) {
	n := listen(t, nil)
	systest.Eventually(t, func() bool { // it may be too late where this process does not run
		_, err := dial(t, n, func(h *Hello) { h.Timeout = 100 * time.Millisecond })
		return err == nil
	})
	require.Equal(t, minTimeout.Milliseconds(), n.peer(t).Milliseconds)
}
