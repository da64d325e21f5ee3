package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// spoken is lossless, and its chunks have bytes: the n-th of a chunk is n+1. An eager operation may go over it.
type spoken struct{ lossless }

func (f *spoken) Poll(s fabric.Sink, _ int) (n int, more bool) {
	for _, h := range f.incoming {
		dst, verdict, _ := s.Accept(&h, min(int(h.Bytes)-4*int(h.PSN), 4))
		if verdict != fabric.Take {
			continue
		}
		for i := range dst {
			dst[i] = byte(i + 1)
		}
		s.Received(&h)
	}
	n, f.incoming = len(f.incoming), nil
	return n, false
}

// TestShardsInALargerResult: each shard lies in its slot, and nothing else is touched; sent from there or
// from elsewhere, through the arena or not.
func TestShardsInALargerResult(t *testing.T) {
	const x = 0xee
	want := []byte{
		x, x, x, x, x, x, x,
		1, 2, 3, 4, 1, 2, x, // of rank 1
		x, x, x, x, x, x, x,
		9, 8, 7, 6, 5, 4, x, // of rank 0
		x, x, x,
	}
	for _, eager := range []int{0, 64} {
		for _, inPlace := range []bool{false, true} {
			f := &spoken{lossless{room: 1 << 20}}
			g := NewGather(GatherConfig{
				Core: multicast.Config{
					Size: 2, Chunk: 4, Lossless: eager == 0, Chains: 1, Subgroups: 1, Eager: eager, Arena: 2 * eager, EagerChunks: 64,
				},
				Fabric: f, Clock: f.clock,
			})
			recv := make([]byte, len(want))
			o := GatherOp{
				Op:   multicast.Op{Collective: wire.Allgather, Bytes: 6, Stride: 7, Slots: []int{3, 1}},
				Recv: recv, Send: []byte{9, 8, 7, 6, 5, 4},
			}
			arena := multicast.NotEager
			for seq := range uint32(2) { // the second does not begin where the arena does
				for i := range recv {
					recv[i] = x
				}
				if inPlace {
					o.Send = recv[21:27]
					copy(o.Send, []byte{9, 8, 7, 6, 5, 4})
				}
				if eager > 0 {
					arena = 64 * seq
				}
				w, err := g.Submit(o, nil)
				require.NoError(t, err)
				for psn := range uint32(2) {
					f.incoming = append(f.incoming,
						wire.Data{Collective: wire.Allgather, Root: 1, Seq: seq, PSN: psn, Bytes: 6, Arena: arena})
				}
				g.Work()
				g.Work()
				require.True(t, done(w))
				require.NoError(t, w.Err())
				require.Equal(t, want, recv, "eager %d, in place %t", eager, inPlace)
			}
		}
	}
}

// TestOwnShardGoesToItsSlot: where there is no other rank.
func TestOwnShardGoesToItsSlot(t *testing.T) {
	f := &lossless{}
	g := NewGather(GatherConfig{
		Core: multicast.Config{Size: 1, Chunk: 4, Chains: 1, Subgroups: 1}, Fabric: f, Clock: f.clock,
	})
	o := GatherOp{
		Op: multicast.Op{Collective: wire.Allgather, Bytes: 2, Stride: 3, Slots: []int{1}}, Recv: make([]byte, 6),
		Send: []byte{1, 2},
	}
	w, err := g.Submit(o, nil)
	require.NoError(t, err)
	g.Work()
	require.True(t, done(w))
	require.Equal(t, []byte{0, 0, 0, 1, 2, 0}, o.Recv)
}
