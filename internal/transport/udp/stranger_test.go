package udp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// wellFormed is a datagram from rank 0, payload bytes long, changed by adjust.
func wellFormed(job uint64, payload int, adjust func(h *wire.Data, b []byte)) []byte {
	h := wire.Data{Collective: wire.Allgather, Job: job, Seq: 1}
	b := make([]byte, wire.DataSize+payload)
	h.Put(b)
	if adjust != nil {
		adjust(&h, b)
	}
	return b
}

// strangers are datagrams that a socket of rank 1 of 2 must refuse.
func strangers(job uint64) map[string][]byte {
	header := func(change func(h *wire.Data)) []byte {
		return wellFormed(job, 100, func(h *wire.Data, b []byte) {
			change(h)
			h.Put(b)
		})
	}
	return map[string][]byte{
		"empty":                {},
		"one byte":             {0x6d},
		"short":                wellFormed(job, 0, nil)[:wire.DataSize-1],
		"garbage":              make([]byte, 1000),
		"magic":                wellFormed(job, 100, func(_ *wire.Data, b []byte) { b[1]++ }),
		"version":              wellFormed(job, 100, func(_ *wire.Data, b []byte) { b[2] += 0x10 }),
		"other job":            header(func(h *wire.Data) { h.Job++ }),
		"other job, high half": header(func(h *wire.Data) { h.Job ^= 1 << 63 }),
		"own rank":             header(func(h *wire.Data) { h.Root = 1 }),
		"no such rank":         header(func(h *wire.Data) { h.Root = 2 }),
		"largest rank":         header(func(h *wire.Data) { h.Root = 0xffff }),
	}
}

func TestFilter(t *testing.T) {
	const job = 0x0123456789abcdef
	vm, err := bpf.NewVM(filter(&Options{Rank: 1, Size: 2, Job: job}, nil))
	require.NoError(t, err)
	passes := func(datagram []byte) bool {
		n, err := vm.Run(append(make([]byte, udpHeader), datagram...))
		require.NoError(t, err)
		return n > 0
	}
	require.True(t, passes(wellFormed(job, 0, nil)))
	require.True(t, passes(wellFormed(job, 1000, nil)))
	for name, b := range strangers(job) {
		require.False(t, passes(b), name)
	}
}

// TestStrangersHaveNoEffect sends them for real, and then what makes it past
// the filter but is wrong.
func TestStrangersHaveNoEffect(t *testing.T) {
	for _, offload := range offloads {
		t.Run(offload.String(), func(t *testing.T) {
			ranks, o := group(t, 2, func(o *Options) { o.Chunk, o.Offload = 1024, offload })
			fd, err := openSender(&o, 0)
			require.NoError(t, err)
			defer func() { require.NoError(t, unix.Close(fd)) }()
			s := newSink(1, 2, 1024, 1024)
			for name, b := range strangers(o.Job) {
				_, err := unix.Write(fd, b)
				require.NoError(t, err, name)
			}
			require.Zero(t, polled(ranks[1], s, 100), "lo delivers before the send returns, so there is nothing")
			require.Zero(t, ranks[1].Stats().ReceivedChunks)

			for name, b := range map[string][]byte{
				"too long":               wellFormed(o.Job, 1025, nil),
				"much too long":          wellFormed(o.Job, 60000, nil),
				"unknown collective":     wellFormed(o.Job, 1024, func(_ *wire.Data, b []byte) { b[2] |= 0xf }),
				"shorter than its chunk": wellFormed(o.Job, 1023, nil),
				"nothing":                wellFormed(o.Job, 0, nil),
				"past the end":           wellFormed(o.Job, 1024, func(h *wire.Data, b []byte) { h.PSN = 1; h.Put(b) }),
				"stale":                  wellFormed(o.Job, 1024, func(h *wire.Data, b []byte) { h.Seq = 0; h.Put(b) }),
			} {
				dropped := ranks[1].Stats().Dropped
				_, err := unix.Write(fd, b)
				require.NoError(t, err, name)
				require.Positive(t, polled(ranks[1], s, 100), name)
				require.Equal(t, dropped+1, ranks[1].Stats().Dropped, name)
				require.Equal(t, 1, s.left, name)
			}

			shard := make([]byte, 1024)
			fill(shard, 0, 1)
			require.Equal(t, 1, ranks[0].Multicast(run(0, 1, shard, 0, 1)))
			require.Equal(t, 1, polled(ranks[1], s, 100))
			require.NoError(t, s.check())
			require.Zero(t, s.left)
			require.Empty(t, s.broken)
		})
	}
}

// TestJobsShareAGroup runs two jobs on one group and port.
func TestJobsShareAGroup(t *testing.T) {
	first, o := group(t, 2, nil)
	second, _ := group(t, 2, func(p *Options) { p.Group, p.Port = o.Group, o.Port })
	exchange(t, first, 100000)
	exchange(t, second, 100000)
	for _, g := range append(first, second...) {
		require.Zero(t, g.Stats().Dropped)
	}
}
