package udp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

var sealKinds = map[string]seal.Kind{"tags": seal.Tags, "encryption": seal.Encryption, "checksum": seal.Checksum}

// sealed has ranks seal with a key that all know.
func sealed(kind seal.Kind) func(o *Options) {
	return func(o *Options) { o.Seals = seal.New(kind, make([]byte, seal.KeySize), uint32(o.Rank)) }
}

func TestSealedChunksOfEverySize(t *testing.T) {
	for name, kind := range sealKinds {
		for _, offload := range offloads {
			for _, chunk := range []int{0, 8896, 1408} {
				t.Run(fmt.Sprintf("%s/%v/%d", name, offload, chunk), func(t *testing.T) {
					ranks, _ := group(t, 3, func(o *Options) {
						o.Offload, o.Chunk = offload, chunk
						sealed(kind)(o)
					})
					full := ranks[0].Traits().Chunk
					for _, shard := range []int{0, 1, full, 3*full + 17, 100*full + 1} {
						exchange(t, ranks, shard)
					}
					for _, g := range ranks {
						require.Zero(t, g.Stats().Dropped)
					}
				})
			}
		}
	}
}

// TestForgedChunksDestroyNothing has a stranger send chunks of the operation under way, alone and between true ones.
// Some of these chunks have arrived already and some not: all forged ones are dropped, and no byte that has arrived
// changes.
func TestForgedChunksDestroyNothing(t *testing.T) {
	const chunk, chunks, batches = 1408, 60, 6
	for name, kind := range sealKinds {
		for _, offload := range offloads {
			t.Run(fmt.Sprintf("%s/%v", name, offload), func(t *testing.T) {
				ranks, o := group(t, 2, func(o *Options) {
					o.Chunk, o.Offload = chunk, offload
					sealed(kind)(o)
				})
				stranger := openStranger(t, &o)
				s := newSink(1, 2, chunk, chunks*chunk-7)
				shard := make([]byte, s.shard)
				fill(shard, 0, 1)
				forged := uint64(0)
				forge := func(psn, length int) {
					h := wire.Data{Collective: wire.Allgather, Job: o.Job, Seq: 1, PSN: uint32(psn), Bytes: uint32(s.shard)}
					b := bytes.Repeat([]byte{0xbb}, o.Head()+length)
					h.Put(b)
					_, err := unix.Write(stranger, b)
					require.NoError(t, err)
					forged++
				}
				for i := range batches {
					for psn := range chunks {
						forge(psn, min(chunk, s.shard-psn*chunk))
					}
					first := i * chunks / batches
					require.Equal(t, chunks/batches, ranks[0].Multicast(run(0, 1, shard, first, chunks/batches)))
					for psn := range chunks {
						forge(psn, min(chunk, s.shard-psn*chunk))
					}
					forge(0, 0)
					honest := uint64((i + 1) * chunks / batches)
					pollUntil(t, ranks[1], s, func() bool {
						stats := ranks[1].Stats()
						return stats.ReceivedChunks+stats.Dropped >= honest+forged
					})
					require.Equal(t, forged, ranks[1].Stats().Forged)
					until := min((i+1)*chunks/batches*chunk, s.shard)
					require.Equal(t, shard[:until], s.of(0)[:until])
				}
				require.Zero(t, s.left)
				require.Equal(t, forged, ranks[1].Stats().Dropped)
			})
		}
	}
}

// openStranger returns a socket that sends to a group.
func openStranger(t *testing.T, o *Options) int {
	t.Helper()
	fd, err := openSender(o, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	return fd
}

// spied returns the next datagram that a socket of a group receives.
func spied(t *testing.T, fd int) []byte {
	t.Helper()
	b := make([]byte, batch.MaxPacket)
	n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
	require.NoError(t, err)
	return b[:n]
}

// TestWhatIsSentTwiceIsSealedAnew: no counter comes again, even after the fabric was opened again by the same Sealer.
// Encrypted payloads cannot be read.
func TestWhatIsSentTwiceIsSealedAnew(t *testing.T) {
	for name, kind := range map[string]seal.Kind{"tags": seal.Tags, "encryption": seal.Encryption} {
		t.Run(name, func(t *testing.T) {
			seals := seal.New(kind, make([]byte, seal.KeySize), 0)
			shard := make([]byte, 1408)
			fill(shard, 0, 1)
			next := uint64(0)
			for range 2 {
				ranks, o := group(t, 1, func(o *Options) { o.Chunk, o.Seals = 1408, seals })
				o.Rank, o.Size = 1, 2 // hears rank 0
				spy, err := openReceiver(&o, 0)
				require.NoError(t, err)
				for range 3 {
					require.Equal(t, 1, ranks[0].Multicast(run(0, 1, shard, 0, 1)))
					b := spied(t, spy)
					require.Len(t, b, o.Head()+len(shard))
					require.Equal(t, next, binary.BigEndian.Uint64(b[wire.DataSize:]))
					require.Equal(t, kind == seal.Tags, bytes.Equal(shard, b[o.Head():]))
					require.False(t, kind == seal.Encryption && bytes.Contains(b, shard[:8]))
					next++
				}
				require.NoError(t, unix.Close(spy))
				require.NoError(t, ranks[0].Close())
			}
		})
	}
}
