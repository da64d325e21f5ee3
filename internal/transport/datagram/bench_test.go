package datagram

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// tally is a Sink that counts.
type tally struct{ datagrams int }

func (c *tally) Datagram(_, _ []byte) { c.datagrams++ }

func TestAllocatesNothing(t *testing.T) {
	for _, offload := range offloads {
		for _, size := range []int{1440, 63 << 10} {
			from, to := pair(t, Options{Offload: offload})
			b := newBatch(t, size)
			payload, hint, c, sent := make([]byte, size), make([]byte, size), &tally{}, 0
			require.Zero(t, testing.AllocsPerRun(100, func() {
				for range 4 {
					b.Add(payload)[0] = 1
				}
				n, err := b.Flush(from)
				sent += n
				for turn, end := 0, systest.Deadline(); err == nil && c.datagrams < sent && time.Now().Before(end); turn++ {
					_, err = b.Receive(to, hint[:size*(turn%2)], 4, c)
				}
				if err != nil {
					panic(err)
				}
			}))
			require.Equal(t, 101*4, sent)
			require.Equal(t, sent, c.datagrams)
		}
	}
}

// BenchmarkLoopback has senders, each with a socket of its own, and one
// goroutine that receives from all of them and answers every so often, so that
// no more is under way than surely fits the receive buffers.
func BenchmarkLoopback(b *testing.B) {
	for _, offload := range []batch.Offload{batch.OffloadAuto, batch.OffloadBatch, batch.OffloadSingle} {
		for _, size := range []int{1440, 63 << 10} {
			for _, senders := range []int{1, 4} {
				b.Run(fmt.Sprintf("%v/%d/senders=%d", offload, size, senders), func(b *testing.B) {
					benchmarkLoopback(b, Options{Offload: offload, RcvBuf: 4 << 20}, size, senders)
				})
			}
		}
	}
}

func benchmarkLoopback(b *testing.B, o Options, size, senders int) {
	sockets, tallies := make([]*Socket, senders), make([]tally, senders)
	own, hint := newBatch(b, size), []byte(nil)
	if size >= 16<<10 {
		hint = make([]byte, size)
	}
	var running sync.WaitGroup
	share, step := (b.N+senders-1)/senders, 0
	for i := range sockets {
		var from *Socket
		from, sockets[i] = pair(b, o)
		step = max(1, sockets[i].Queue(head+size)/4)
		own, p := newBatch(b, size), poller(b, from)
		running.Go(func() {
			if err := stream(from, own, p, make([]byte, size), share, step); err != nil {
				b.Error(err)
			}
		})
	}
	p := poller(b, sockets...)
	b.SetBytes(int64(size))
	b.ResetTimer()
	for left := senders; left > 0; {
		for _, event := range p.Wait(systest.Limit) {
			s, c := sockets[event.Fd], &tallies[event.Fd]
			before := c.datagrams
			_, err := own.Receive(s, hint, 64, c)
			for range c.datagrams/step - before/step {
				own.Add(nil)
			}
			_, failed := own.Flush(s)
			require.NoError(b, errors.Join(err, failed))
			if c.datagrams == share && before < share {
				left--
			}
		}
	}
	b.StopTimer()
	running.Wait()
	b.ReportMetric(float64(own.Syscalls.Load()+p.Syscalls.Load())/float64(share*senders), "calls/op")
}

// stream sends n datagrams, no more than 3 steps ahead of the answers, one a step.
func stream(s *Socket, b *Batch, p *sys.Poller, payload []byte, n, step int) error {
	answers := &tally{}
	for sent := 0; sent < n; {
		room := min(n, (answers.datagrams+3)*step) - sent
		for b.Added() < room && b.Add(payload) != nil {
			continue
		}
		took, err := b.Flush(s)
		sent += took
		if room == 0 {
			p.Wait(systest.Limit)
			_, err = b.Receive(s, nil, 64, answers)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func poller(b *testing.B, sockets ...*Socket) *sys.Poller {
	p, err := sys.NewPoller()
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, p.Close()) })
	for i, s := range sockets {
		require.NoError(b, p.Watch(s.FD(), i, unix.EPOLLIN))
	}
	return p
}
