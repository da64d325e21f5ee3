package datagram

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func repeat(n, size int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// TestEveryByte has each step of offload carry datagrams of one size, the last
// of them short, with and without a hint.
func TestEveryByte(t *testing.T) {
	for _, local := range loopbacks {
		for _, offload := range offloads {
			t.Run(fmt.Sprintf("%v/%v", local, offload), func(t *testing.T) {
				from, to := pair(t, Options{Local: local, Offload: offload})
				for _, size := range []int{0, 1, 777, 1440, 8896, 20001, 63 << 10, to.MTU() - head} {
					sizes := append(repeat(max(3, min(200, (4<<20)/(size+1))), size), size/3)
					exchange(t, from, to, sizes, nil)
					c := exchange(t, from, to, sizes, make([]byte, size))
					if size > 32<<10 {
						require.Equal(t, len(sizes), c.inHint, "one datagram a message")
					}
				}
			})
		}
	}
}

// TestAnySizes sends datagrams of all lengths in a row, received with hints of any length.
func TestAnySizes(t *testing.T) {
	for _, offload := range offloads {
		from, to := pair(t, Options{Offload: offload})
		rapid.Check(t, func(r *rapid.T) {
			size := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 3000), rapid.IntRange(0, 65475))
			runs := rapid.SliceOfN(size, 1, 12).Draw(r, "sizes")
			var sizes []int
			for _, s := range runs {
				sizes = append(sizes, repeat(rapid.IntRange(1, 1+min(20, 100000/(s+1))).Draw(r, "times"), s)...)
			}
			exchange(t, from, to, sizes, make([]byte, size.Draw(r, "hint")))
		})
	}
}

// TestMerged has the kernel segment and merge: few calls move many datagrams.
func TestMerged(t *testing.T) {
	from, to := pair(t, Options{Offload: OffloadGSO})
	out, in := batch(t, 1440), batch(t, 1440)
	c := &checker{sizes: repeat(64, 1440)}
	for i := range c.sizes {
		add(t, out, i, 1440)
	}
	require.Nil(t, out.Add(nil), "full")
	sent, err := out.Flush(from)
	require.NoError(t, err)
	require.Equal(t, 64, sent)
	require.EqualValues(t, 1, out.Syscalls.Load())
	n, err := in.Receive(to, nil, 1, c)
	require.NoError(t, err)
	require.Equal(t, 44, n, "what fits in 64 KiB comes as one message")
	c.receive(t, in, to)
	require.Len(t, c.got, 64)
}

func TestBatchIsFull(t *testing.T) {
	b := batch(t, 63<<10)
	payload := make([]byte, 63<<10)
	for range 8 {
		require.NotNil(t, b.Add(payload))
	}
	require.Nil(t, b.Add(payload), "512 KiB")
	require.NotNil(t, b.Add(payload[:100]))
	require.Equal(t, 9, b.Added())
}

// TestHintMissed has datagrams come that are longer than the hint, and merged ones.
func TestHintMissed(t *testing.T) {
	from, to := pair(t, Options{})
	c := exchange(t, from, to, []int{20000, 20000, 20000, 20000, 20000}, make([]byte, 19999))
	require.Zero(t, c.inHint)
	c = exchange(t, from, to, []int{20000, 0, 20000}, make([]byte, 19999))
	require.Zero(t, c.inHint)
	c = exchange(t, from, to, []int{20000, 40000, 40001}, make([]byte, 20000))
	require.Equal(t, 1, c.inHint)
}

// TestBudget bounds the messages of a call.
func TestBudget(t *testing.T) {
	from, to := pair(t, Options{Offload: OffloadBatch})
	out, in := batch(t, 100), batch(t, 100)
	c := &checker{sizes: repeat(10, 100)}
	for i := range c.sizes {
		add(t, out, i, 100)
	}
	_, err := out.Flush(from)
	require.NoError(t, err)
	for _, budget := range [][2]int{{0, 0}, {1, 1}, {4, 4}, {64, 5}, {64, 0}} {
		n, err := in.Receive(to, nil, budget[0], c)
		require.NoError(t, err)
		require.Equal(t, budget[1], n)
	}
	require.NoError(t, c.wrong)
}

// TestShortDatagrams come as a head that is too short.
func TestShortDatagrams(t *testing.T) {
	from, to := pair(t, Options{})
	in := batch(t, 100)
	for _, size := range []int{0, 1, head - 1} {
		for _, hint := range [][]byte{nil, make([]byte, 1000)} {
			_, err := unix.Write(from.fd, make([]byte, size))
			require.NoError(t, err)
			c := &checker{hint: hint}
			c.receive(t, in, to)
			require.Equal(t, 1, c.strange)
		}
	}
}

// TestQueueHolds fills a receive buffer with what Queue promises, and then much more.
func TestQueueHolds(t *testing.T) {
	for _, offload := range offloads {
		for _, size := range []int{100, 1440, 20000, 63 << 10} {
			t.Run(fmt.Sprintf("%v/%d", offload, size), func(t *testing.T) {
				from, to := pair(t, Options{Offload: offload, RcvBuf: 1 << 20})
				promised := to.Queue(head + size)
				require.Greater(t, promised, 10)
				out, in := batch(t, size), batch(t, size)
				flood := (8 << 20) / size
				c := &checker{sizes: repeat(flood, size)}
				send := func(n int) {
					for next := 0; next < n; {
						for i := next; i < n && (out.Added() == 0 || out.Added() < 8); i++ {
							add(t, out, i, size)
						}
						sent, err := out.Flush(from)
						require.NoError(t, err)
						next += sent
					}
				}
				for range 3 {
					send(promised)
					c.receive(t, in, to)
					require.Len(t, c.got, promised)
					c.got = c.got[:0]
				}
				send(flood)
				c.receive(t, in, to)
				require.GreaterOrEqual(t, len(c.got), promised)
				require.Less(t, len(c.got), flood)
				require.IsIncreasing(t, c.got)
			})
		}
	}
}

// TestStrangers send before and after the peer is known, to no effect.
func TestStrangers(t *testing.T) {
	stranger := open(t, Options{Local: loopbacks[0]})
	peer, s := open(t, Options{Local: loopbacks[0]}), open(t, Options{Local: loopbacks[0]})
	at := netip.AddrPortFrom(loopbacks[0], s.Port())
	require.NoError(t, stranger.Connect(at))
	require.NoError(t, peer.Connect(at))
	b := batch(t, 100)
	// Its own peer's early datagrams are lost, too.
	for _, from := range []*Socket{stranger, peer} {
		add(t, b, 1, 100)
		_, err := b.Flush(from)
		require.NoError(t, err)
	}
	require.NoError(t, s.Connect(netip.AddrPortFrom(loopbacks[0], peer.Port())))
	add(t, b, 2, 100)
	_, err := b.Flush(stranger)
	if err != nil { // Some kernels say that nobody listens to strangers there.
		require.ErrorIs(t, err, unix.ECONNREFUSED)
	}
	add(t, b, 0, 100)
	sent, err := b.Flush(peer)
	require.NoError(t, err)
	require.Equal(t, 1, sent)
	c := &checker{sizes: repeat(3, 100)}
	c.receive(t, b, s)
	require.Equal(t, []int{0}, c.got)
	require.Zero(t, c.strange)
}

// TestRefusedPeer has the peer's port closed for a while.
func TestRefusedPeer(t *testing.T) {
	a, b := pair(t, Options{})
	port := b.Port()
	require.NoError(t, b.Close())
	out, in := batch(t, 100), batch(t, 100)
	add(t, out, 0, 100)
	sent, err := out.Flush(a)
	require.NoError(t, err, "nobody knows yet")
	require.Equal(t, 1, sent)
	add(t, out, 1, 100)
	sent, err = out.Flush(a)
	require.Zero(t, sent)
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	require.ErrorContains(t, err, fmt.Sprintf("to 127.0.0.1:%d: ", port))
	add(t, out, 0, 100)
	_, err = out.Flush(a)
	require.NoError(t, err, "an error is told once")
	_, err = in.Receive(a, nil, 1, &checker{})
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	again := open(t, Options{Local: loopbacks[0], First: port, Last: port})
	require.NoError(t, again.Connect(netip.AddrPortFrom(loopbacks[0], a.Port())))
	exchange(t, a, again, repeat(100, 1000), nil)
	exchange(t, again, a, repeat(100, 1000), nil)
}

// TestTooLong names what the path takes.
func TestTooLong(t *testing.T) {
	a, b := pair(t, Options{Local: loopbacks[1]})
	out := batch(t, 65475)
	add(t, out, 0, 65475)
	sent, err := out.Flush(a)
	require.Zero(t, sent)
	require.ErrorIs(t, err, unix.EMSGSIZE)
	require.ErrorContains(t, err, "send 65507 bytes from port ")
	require.ErrorContains(t, err, "the path takes 65487")
	exchange(t, a, b, []int{65455, 1440, 1440}, nil)
}

// nothing is a Sink for what a measurement sends.
type nothing struct{ datagrams, bytes int }

func (n *nothing) Datagram(_, payload []byte) {
	n.datagrams++
	n.bytes += len(payload)
}

func TestAllocatesNothing(t *testing.T) {
	for _, offload := range offloads {
		for _, size := range []int{1440, 63 << 10} {
			from, to := pair(t, Options{Offload: offload})
			b := batch(t, size)
			payload, hint, sink := make([]byte, size), make([]byte, size), &nothing{}
			require.Zero(t, testing.AllocsPerRun(100, func() {
				for range 4 {
					b.Add(payload)[0] = 1
				}
				if sent, err := b.Flush(from); sent != 4 || err != nil {
					panic(err)
				}
				for range 5 {
					if _, err := b.Receive(to, hint, 4, sink); err != nil {
						panic(err)
					}
					if _, err := b.Receive(to, nil, 4, sink); err != nil {
						panic(err)
					}
				}
			}))
			require.Equal(t, 101*4, sink.datagrams)
			require.Equal(t, 101*4*size, sink.bytes)
		}
	}
}

// BenchmarkLoopback has senders, each with a socket of its own, and one
// goroutine that receives from all of them. What is lost does not count.
func BenchmarkLoopback(b *testing.B) {
	for _, offload := range []Offload{OffloadAuto, OffloadBatch, OffloadSingle} {
		for _, size := range []int{1440, 63 << 10} {
			for _, senders := range []int{1, 4} {
				b.Run(fmt.Sprintf("%v/%d/senders=%d", offload, size, senders), func(b *testing.B) {
					benchmarkLoopback(b, Options{Offload: offload}, size, senders)
				})
			}
		}
	}
}

func benchmarkLoopback(b *testing.B, o Options, size, senders int) {
	stop := make(chan struct{})
	done := make(chan struct{}, senders)
	sockets := make([]*Socket, senders)
	for i := range sockets {
		var from *Socket
		from, sockets[i] = pair(b, o)
		out := batch(b, size)
		go func() {
			defer func() { done <- struct{}{} }()
			payload := make([]byte, size)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for out.Add(payload) != nil {
				}
				if _, err := out.Flush(from); err != nil {
					panic(err)
				}
			}
		}()
	}
	in, sink := batch(b, size), &nothing{}
	hint := make([]byte, size)
	if size < 16<<10 {
		hint = nil
	}
	b.SetBytes(int64(size))
	b.ResetTimer()
	deadline := time.Now().Add(patience)
	for sink.datagrams < b.N && time.Now().Before(deadline) {
		for _, s := range sockets {
			if _, err := in.Receive(s, hint, 64, sink); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	require.GreaterOrEqual(b, sink.datagrams, b.N)
	close(stop)
	for range senders {
		<-done
	}
}
