package udp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// catcher is a sink that expects a run of chunks and compares received chunks with the sent ones.
type catcher struct {
	t      *testing.T
	guess  fabric.Expected
	chunk  int
	came   map[uint32]bool // chunks that have their place
	aside  [batch.Max * batch.MaxPacket]byte
	placed []byte
	sent   [][]byte // datagrams that are to come, in order
}

func (c *catcher) Expect(*wire.Data) fabric.Expected { return c.guess }
func (c *catcher) Control(int, *wire.Control)        {}
func (c *catcher) ReadEnded(*wire.Read, bool)        {}
func (c *catcher) Broken(int, error)                 {}

func (c *catcher) Accept(h *wire.Data, n int) (dst []byte, verdict fabric.Verdict, stream bool) {
	c.placed = nil
	at := int(h.PSN-c.guess.PSN) * c.chunk
	switch {
	case h.Seq&3 == 3: // nobody wants it
		return nil, fabric.Drop, false
	case h.Root != c.guess.Root || h.Seq != c.guess.Seq || h.PSN-c.guess.PSN >= batch.Max || at+n > len(c.guess.Dst) ||
		n > c.chunk:
		c.placed = c.aside[:n]
	case c.came[h.PSN]:
		return nil, fabric.Drop, false
	default:
		c.came[h.PSN] = true
		c.placed = c.guess.Dst[at:][:n]
	}
	return c.placed, fabric.Take, false
}

// Received finds the datagram among the sent ones: some before it may have been dropped.
func (c *catcher) Received(h *wire.Data) {
	for i, d := range c.sent {
		var head wire.Data
		if len(d) < wire.DataSize || head.Get(d) != nil || head != *h {
			continue
		}
		require.Equal(c.t, d[wire.DataSize:], c.placed[:len(d)-wire.DataSize], "%+v", h)
		c.sent = c.sent[i+1:]
		return
	}
	require.Fail(c.t, "a datagram that nobody sent", "%+v", h)
}

// FuzzMerged has the kernel merge datagrams of any content and size, the last one shorter, which
// chunks may or may not be expected.
func FuzzMerged(f *testing.F) {
	const chunk, job, rank, size = MinChunk, 7, 0, 3
	datagram := func(psn uint32, n int) []byte {
		b := make([]byte, wire.DataSize+n)
		(&wire.Data{Collective: wire.Allgather, Root: 1, Seq: 5, PSN: psn, Bytes: 1000, Job: job}).Put(b)
		for i := range n {
			b[wire.DataSize+i] = byte(psn) + 1
		}
		return b
	}
	full := append(append(datagram(10, chunk), datagram(11, chunk)...), datagram(12, 20)...)
	odd := append(append(datagram(12, chunk), datagram(10, chunk)...), datagram(11, 0)...)
	small := append(append(datagram(11, 20), datagram(10, 20)...), datagram(30, 9)...)
	for _, room := range []int{0, 1, 2 * chunk, 2*chunk + 20, 10 * chunk} {
		f.Add(full, chunk+wire.DataSize, room)
		f.Add(odd, chunk+wire.DataSize, room)
		f.Add(small, 20+wire.DataSize, room)
		f.Add(full, 0, room)
	}
	f.Add(full, 1, 0)
	from, to := merging(f)
	f.Fuzz(func(t *testing.T, b []byte, each, room int) {
		g := &Gather{
			Edges: Edges{rank: rank, size: size, chunk: chunk}, job: job, use: batch.Kernel{Merge: true, Batch: true},
		}
		require.NoError(t, g.openBoxes())
		defer func() { require.NoError(t, errors.Join(g.in.Close(), g.out.Close())) }()
		n := int(uint16(each)) // as the kernel has it
		if n == 0 {
			n = max(1, len(b))
		}
		b = b[:min(len(b), batch.MaxPacket-batch.IPv4.Headers, batch.Max*n)]
		c := &catcher{t: t, chunk: chunk, came: map[uint32]bool{}}
		c.guess = fabric.Expected{Root: 1, Seq: 5, PSN: 10, Dst: make([]byte, uint(room)%(20*chunk))}
		c.sent = slices.Collect(slices.Chunk(b, n))
		left := max(1, len(c.sent))
		require.NoError(t, unix.SetsockoptInt(from, unix.IPPROTO_UDP, unix.UDP_SEGMENT, n))
		require.NoError(t, unix.Send(from, b, 0))
		r := receiver{fd: to}
		for left > 0 {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(to), Events: unix.POLLIN}}, int(systest.Limit/time.Millisecond))
			require.True(t, err == nil || errors.Is(err, unix.EINTR))
			got, _ := g.receive(&r, c, 100)
			require.Positive(t, got)
			left -= got
		}
		require.Zero(t, left)
		require.NoError(t, g.fault)
	})
}

// merging returns two UDP sockets of this host. The second receives, merged, datagrams that the first
// sends.
func merging(t testing.TB) (from, to int) {
	t.Helper()
	var fds [2]int
	for i := range fds {
		fd, err := batch.Open(unix.AF_INET)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
		require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		fds[i] = fd
	}
	at, err := unix.Getsockname(fds[1])
	require.NoError(t, err)
	require.NoError(t, unix.Connect(fds[0], at))
	require.NoError(t, batch.Set(fds[1], batch.Merging))
	return fds[0], fds[1]
}
