package shm

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// greedy is a sink that has a place for every chunk.
type greedy struct {
	t     *testing.T
	chunk int
	into  []byte
}

func (g *greedy) Expect(*wire.Data) fabric.Expected { return fabric.Expected{} }
func (g *greedy) Received(*wire.Data)               {}
func (g *greedy) ReadEnded(*wire.Read, bool)        {}
func (g *greedy) Broken(_ int, err error)           { require.Error(g.t, err) }

func (g *greedy) Accept(h *wire.Data, n int) (dst []byte, verdict fabric.Verdict, stream bool) {
	require.LessOrEqual(g.t, n, g.chunk)
	if h.Seq&7 == 7 {
		return nil, fabric.Hold, false
	}
	return g.into[:n], fabric.Take, h.PSN&1 != 0
}

func (g *greedy) Control(from int, m *wire.Control) {
	require.NotZero(g.t, from)
	require.Zero(g.t, m.Payload())
}

// FuzzRegion has ranks 1 and 2 of a region write any bytes to any place. Rank 0 must not panic, nor
// believe in more than there can be.
func FuzzRegion(f *testing.F) {
	const size = 3
	lay := small(size)
	p := lay.places()
	poke := func(at int, value uint64) []byte {
		b := binary.LittleEndian.AppendUint16([]byte{0}, uint16(at/8))
		return append(binary.LittleEndian.AppendUint64(append(b, 0), value), 1, 2, 3, 4, 5)
	}
	ring := p.rings + lay.ringBytes()
	f.Add(poke(ring, 1))
	f.Add(append(poke(p.slots+lay.Slots*lay.slotBytes(), 0x0103_6d63), poke(ring, 2)...))
	f.Add(append(poke(p.slots+lay.Slots*lay.slotBytes()+wire.DataSize, 101), poke(ring, 1)...))
	f.Add(poke(p.rings+2*line, 1<<63))
	f.Add(poke(p.boxes, 3))
	f.Add(poke(p.boxes+line, entries+1))
	f.Add(poke(p.streams[reductions].positions+size*2*line, page+1))
	f.Add(poke(p.streams[reductions].positions+2*line+line, 9))
	f.Fuzz(func(t *testing.T, script []byte) {
		fd, err := create(testJob, lay)
		require.NoError(t, err)
		w, err := open(fd, testJob, 0, size)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		g, s := w.Gather(), w.Streams()
		defer func() { require.NoError(t, g.Close()); require.NoError(t, s.Close()); require.NoError(t, w.Close()) }()
		sink, shard := &greedy{t, lay.Chunk, make([]byte, lay.Chunk)}, make([]byte, 10*lay.Chunk)
		for len(script) > 0 {
			call := script[0]
			script = script[1:]
			peer := 1 + int(call>>4)%2
			switch call % 8 {
			case 0, 6, 7:
				if len(script) < 11 {
					return
				}
				at := page + int(binary.LittleEndian.Uint16(script))*8%(lay.Bytes()-page)
				copy(w.mem[at:], script[3:11]) // rank 0 keeps nothing of its own there
				script = script[11:]
			case 1:
				g.Poll(sink, 100)
			case 2:
				g.Multicast(&fabric.Run{
					Head: wire.Data{Collective: wire.Allgather, Seq: 1}, Shard: shard, Count: 1 + int(call>>4)%10,
				})
			case 3:
				g.Control(peer, &wire.Control{Kind: wire.Done}, nil)
			case 4:
				n := s.Send(peer, shard)
				require.LessOrEqual(t, n, len(shard))
			case 5:
				if b := s.Peek(peer, 1000); len(b) > 0 {
					require.LessOrEqual(t, len(b), 1000)
					s.Consume(peer, 1+len(b)/2)
				}
			}
			g.ready()
			s.ready()
		}
	})
}

// FuzzHeader maps a region with random first bytes: it is one of ours, or refused.
func FuzzHeader(f *testing.F) {
	f.Add(0, []byte("mcast"))
	f.Add(16, make([]byte, 32))
	f.Add(28, []byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, at int, b []byte) {
		fd, err := create(testJob, small(2))
		require.NoError(t, err)
		defer unix.Close(fd)
		at = int(uint(at) % 64)
		_, err = unix.Pwrite(fd, b[:min(len(b), page-at)], int64(at))
		require.NoError(t, err)
		w, err := open(fd, testJob, 0, 2)
		if err != nil {
			require.ErrorIs(t, err, errHeader)
			return
		}
		require.NoError(t, w.lay.Check())
		require.Len(t, w.mem, w.lay.Bytes())
		require.NoError(t, w.Close())
	})
}
