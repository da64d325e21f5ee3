package world

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// TestOneHost: ranks that are on one host share memory, and an operation takes about as long as
// copying its bytes.
func TestOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, n = 4, 1 << 20
		w := New(Config{Ranks: size, On: []int{0, 0, 0, 0}, MTU: 1500, Queue: 64})
		var all sync.WaitGroup
		for rank := range size {
			all.Go(func() {
				s := config.Default()
				s.Timeout = 3 * time.Second
				e, err := group.Open(group.Options{
					Rank: rank, Size: size, Settings: s, Network: w.Host(rank), Logger: slog.New(slog.DiscardHandler),
				})
				require.NoError(t, err)
				blobs, err := e.Rendezvous(t.Context(), meetingPoint)
				require.NoError(t, err)
				g, err := e.Join(t.Context(), blobs)
				require.NoError(t, err)
				assert.Equal(t, "shm", g.Info().Fabric)
				send, recv, out := make([]byte, n), make([]byte, size*n), make([]byte, n)
				for k := range send {
					send[k] = byte(rank + k)
				}
				start := time.Now()
				require.NoError(t, g.Allgather(send, recv))
				require.Empty(t, differs(recv, func(k int) byte { return byte(k/n + k%n) }))
				require.NoError(t, g.ReduceScatter(recv, out, reduce.U8, reduce.Sum, 1))
				require.Empty(t, differs(out, func(k int) byte { return byte(size * (rank + k)) }))
				copying := float64(size*n) / memoryRate * float64(time.Second)
				assert.InDelta(t, copying, time.Since(start), copying/2)
				require.NoError(t, g.Close())
			})
		}
		all.Wait()
	})
}

// regions returns a region as each of its ranks has it.
func regions(t *testing.T, lay shm.Layout) (all []hostnet.Region) {
	w := New(Config{Ranks: lay.Size, On: make([]int, lay.Size)})
	server, err := w.Host(0).ServeRegion(t.Context(), 7, 8, lay)
	require.NoError(t, err)
	for rank := range lay.Size {
		c, err := w.Host(rank).DialRegion(t.Context(), server.Address(), 7, 8, rank, lay.Size)
		require.NoError(t, err)
		r, err := c.Attach(t.Context())
		require.NoError(t, err)
		all = append(all, r)
	}
	return all
}

// TestRegionIsServedOnce: a region serves ranks of its own host that know its key, and each of them
// once.
func TestRegionIsServedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Ranks: 3, On: []int{0, 0, 1}}, Fault{What: Descriptors, From: 1, At: time.Second, For: time.Second})
		server, err := w.Host(0).ServeRegion(t.Context(), 7, 8, shm.DefaultLayout(2))
		require.NoError(t, err)
		attach := func(host int, key uint64, rank int) error {
			c, err := w.Host(host).DialRegion(t.Context(), server.Address(), 7, key, rank, 2)
			if err == nil {
				_, err = c.Attach(t.Context())
			}
			return err
		}
		require.ErrorIs(t, attach(2, 8, 1), fabric.ErrUnavailable, "another host")
		require.ErrorIs(t, attach(1, 9, 1), errRefused, "another key")
		require.NoError(t, attach(0, 8, 0))
		require.ErrorIs(t, attach(1, 8, 0), errRefused, "a rank that has it")
		c, err := w.Host(1).DialRegion(t.Context(), server.Address(), 7, 8, 1, 2)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = c.Attach(t.Context())
		require.True(t, lacks(err), "%v", err)
		time.Sleep(time.Second)
		_, err = c.Attach(t.Context())
		require.NoError(t, err, "once there are descriptors again")
		require.ErrorIs(t, attach(0, 8, 0), fabric.ErrUnavailable, "all have it")
	})
}

// TestServerThatStandsStill answers once it goes on; one that has ended does not.
func TestServerThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Config{Ranks: 2, On: []int{0, 0}})
		server, err := w.Host(0).ServeRegion(t.Context(), 7, 8, shm.DefaultLayout(2))
		require.NoError(t, err)
		w.Host(0).Stop(time.Second)
		start := time.Now()
		c, err := w.Host(1).DialRegion(t.Context(), server.Address(), 7, 8, 1, 2)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = c.Attach(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = c.Attach(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))
		c, err = w.Host(0).DialRegion(t.Context(), server.Address(), 7, 8, 0, 2)
		require.NoError(t, err)
		w.Host(0).Kill(false)
		_, err = c.Attach(t.Context())
		require.ErrorIs(t, err, errRefused)
	})
}

// TestStreamOfRegion: a stream holds so much and no more, gives it in order, aligned, once it has been
// copied, and wakes who waits for room.
func TestStreamOfRegion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := regions(t, shm.DefaultLayout(2))
		from, to := all[0].Streams(), all[1].Streams()
		b := make([]byte, 3*streamRoom/2)
		for k := range b {
			b[k] = byte(k % 251)
		}
		require.Equal(t, streamRoom, from.Send(1, b))
		require.Zero(t, from.Send(1, b[streamRoom:]))
		require.Empty(t, to.Peek(0, 8), "before it is copied")
		start := time.Now()
		for len(to.Peek(0, 8)) == 0 {
			to.Sleep(time.Hour)
		}
		require.Less(t, time.Since(start), 10*time.Microsecond)
		require.Equal(t, b[:1000], to.Peek(0, 1000))
		room := make(chan time.Duration)
		go func() {
			from.Sleep(time.Hour)
			room <- time.Since(start)
		}()
		time.Sleep(time.Millisecond)
		to.Consume(0, 1000)
		require.Less(t, <-room, 2*time.Millisecond)
		require.Equal(t, 1000, from.Send(1, b[streamRoom:]))
		time.Sleep(time.Millisecond)
		got := append([]byte(nil), to.Peek(0, len(b))...)
		require.Len(t, got, streamRoom-1000, "as far as the ring goes")
		to.Consume(0, len(got))
		got = append(got, to.Peek(0, len(b))...)
		require.Equal(t, b[1000:streamRoom+1000], got)
	})
}
