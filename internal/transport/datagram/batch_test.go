package datagram

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
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
					sizes := append(repeat(max(3, min(200, (1<<20)/(size+1))), size), size/3)
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
	from, to := pair(t, Options{Offload: batch.OffloadGSO})
	out, in := newBatch(t, 1440), newBatch(t, 1440)
	c := &checker{sizes: repeat(64, 1440)}
	for i := range c.sizes {
		add(t, out, i, 1440)
	}
	require.Nil(t, out.Add(nil), "full")
	sent, err := out.Flush(from)
	require.NoError(t, err)
	require.Equal(t, 64, sent)
	require.EqualValues(t, 1, out.Syscalls.Load())
	await(t, to)
	n, err := in.Receive(to, nil, 1, c)
	require.NoError(t, err)
	require.Equal(t, 44, n, "what fits in 64 KiB comes as one message")
	c.receive(t, in, to, 64)
	require.Len(t, c.got, 64)
}

func TestBatchIsFull(t *testing.T) {
	b := newBatch(t, 63<<10)
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
	from, to := pair(t, Options{Offload: batch.OffloadBatch})
	out, in := newBatch(t, 100), newBatch(t, 100)
	c := &checker{sizes: repeat(10, 100)}
	for i := range c.sizes {
		add(t, out, i, 100)
	}
	_, err := out.Flush(from)
	require.NoError(t, err)
	for _, budget := range []int{0, 1, 4, 64} {
		before := len(c.got)
		await(t, to)
		n, err := in.Receive(to, nil, budget, c)
		require.NoError(t, err)
		require.LessOrEqual(t, n, budget)
		require.Equal(t, n, len(c.got)-before)
	}
	c.receive(t, in, to, len(c.sizes))
	require.Len(t, c.got, len(c.sizes))
}

// TestShortDatagrams come as a head that is too short.
func TestShortDatagrams(t *testing.T) {
	from, to := pair(t, Options{})
	in := newBatch(t, 100)
	for _, size := range []int{0, 1, head - 1} {
		for _, hint := range [][]byte{nil, make([]byte, 1000)} {
			_, err := unix.Write(from.sender.FD, make([]byte, size))
			require.NoError(t, err)
			c := &checker{hint: hint}
			c.receive(t, in, to, 1)
			require.Equal(t, 1, c.strange)
		}
	}
}

// TestQueueHolds fills a receive buffer with what Queue promises, and then much more.
func TestQueueHolds(t *testing.T) {
	for _, offload := range offloads {
		for _, size := range []int{100, 1440, 20000, 63 << 10} {
			t.Run(fmt.Sprintf("%v/%d", offload, size), func(t *testing.T) {
				from, to := pair(t, Options{Offload: offload, RcvBuf: 256 << 10})
				promised := to.Queue(head + size)
				require.Greater(t, promised, 4)
				in, many := newBatch(t, size), (2<<20)/size
				for range 3 {
					c := &checker{sizes: repeat(promised, size)}
					flood(t, from, size, promised)
					c.receive(t, in, to, promised)
					require.Len(t, c.got, promised)
				}
				c := &checker{sizes: repeat(many, size)}
				flood(t, from, size, many)
				c.receive(t, in, to, promised)
				require.Less(t, len(c.got), many)
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
	b := newBatch(t, 100)
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
	c.receive(t, b, s, 1)
	require.Equal(t, []int{0}, c.got)
	require.Zero(t, c.strange)
}

// TestRefusedPeer has the peer's port closed for a while.
func TestRefusedPeer(t *testing.T) {
	a, b := pair(t, Options{})
	port := b.Port()
	require.NoError(t, b.Close())
	out, in := newBatch(t, 100), newBatch(t, 100)
	add(t, out, 0, 100)
	sent, err := out.Flush(a)
	require.NoError(t, err, "nobody knows yet")
	require.Equal(t, 1, sent)
	await(t, a)
	add(t, out, 1, 100)
	sent, err = out.Flush(a)
	require.Zero(t, sent)
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	require.ErrorContains(t, err, fmt.Sprintf("to 127.0.0.1:%d: ", port))
	add(t, out, 0, 100)
	_, err = out.Flush(a)
	require.NoError(t, err, "an error is told once")
	await(t, a)
	_, err = in.Receive(a, nil, 1, &checker{})
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	again := open(t, Options{Local: loopbacks[0], First: port, Last: port})
	require.NoError(t, again.Connect(netip.AddrPortFrom(loopbacks[0], a.Port())))
	exchange(t, a, again, repeat(100, 1000), nil)
	exchange(t, again, a, repeat(100, 1000), nil)
}

// TestSegmentationRefused has the kernel refuse segmentation once: for good, as by a device
// without checksums, or for now, as by an interface that has lost its address or has a smaller
// MTU by now.
func TestSegmentationRefused(t *testing.T) {
	for e, forGood := range map[unix.Errno]bool{unix.EIO: true, unix.EINVAL: false} {
		from, to := pair(t, Options{})
		require.True(t, from.sender.Use.Segment)
		_, sent, err := refuse(t, from, e)
		require.Zero(t, sent)
		require.ErrorIs(t, err, e)
		require.Equal(t, forGood, !from.sender.Use.Segment, "%v", e)
		exchange(t, from, to, append(repeat(100, 1440), 7, 9, 9, 9), nil)
	}
}

// refuse flushes ten datagrams while the kernel answers each send with an error.
func refuse(t *testing.T, from *Socket, e unix.Errno) (out *Batch, sent int, err error) {
	t.Helper()
	out = newBatch(t, 1440)
	for i := range 10 {
		add(t, out, i, 1440)
	}
	systest.InSandbox(t, e, []uint32{unix.SYS_SENDMSG, unix.SYS_SENDMMSG}, func() { sent, err = out.Flush(from) })
	return out, sent, err
}

// TestFirewall: a forbidden datagram is lost, and counted.
func TestFirewall(t *testing.T) {
	from, to := pair(t, Options{})
	out, sent, err := refuse(t, from, unix.EPERM)
	require.NoError(t, err)
	require.Equal(t, 10, sent)
	require.EqualValues(t, 10, out.Refused.Load())
	exchange(t, from, to, repeat(100, 1440), nil)
}

// TestTooLong names what the path takes.
func TestTooLong(t *testing.T) {
	a, b := pair(t, Options{Local: loopbacks[1]})
	out := newBatch(t, 65475)
	add(t, out, 0, 65475)
	sent, err := out.Flush(a)
	require.Zero(t, sent)
	require.ErrorIs(t, err, unix.EMSGSIZE)
	require.ErrorContains(t, err, "send 65507 bytes from port ")
	require.ErrorContains(t, err, "the path takes 65487")
	exchange(t, a, b, []int{65455, 1440, 1440}, nil)
}
