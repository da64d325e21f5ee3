package verbs

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// TestForgedDatagrams: nothing from the device of a rank without the key gets anywhere. Datagrams of other ranks
// arrive, from registered memory or not. There are no reads, since nobody could tell who has answered.
func TestForgedDatagrams(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	const size, stranger, chunk, chunks = 3, 2, 1000, 70
	for name, kind := range map[string]seal.Kind{"tags": seal.Tags, "encryption": seal.Encryption} {
		t.Run(name, func(t *testing.T) {
			ranks := make([]*Gather, size)
			for r, conns := range systest.Mesh(t, size) {
				ifi, err := net.InterfaceByName(fmt.Sprintf("h%d", r+1))
				require.NoError(t, err)
				key := make([]byte, seal.KeySize)
				if r == stranger {
					key[0]++
				}
				o := udp.Options{
					Rank: r, Size: size, Left: (r + size - 1) % size, Right: (r + 1) % size, Job: 1,
					Group: netip.MustParseAddr("239.7.7.9"), Port: 7979,
					Interface: ifi, Chunk: chunk, Conns: conns, Seals: seal.New(kind, key, uint32(r)),
				}
				for q := range size {
					o.Sources = append(o.Sources, netip.AddrFrom4([4]byte{10, 9, 1, byte(q + 1)}))
				}
				ranks[r], err = Open(o)
				require.NoError(t, err)
				require.Zero(t, ranks[r].Traits().Reads)
				t.Cleanup(func() { require.NoError(t, ranks[r].Close()) })
			}
			memory, err := unix.Mmap(-1, 0, 128<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			require.NoError(t, err)
			defer func() { require.NoError(t, unix.Munmap(memory)) }()
			shard := memory[:chunks*chunk-3]
			systest.NewPattern(0, 1).Fill(shard)
			sinks := make([]*reader, size)
			for r := range sinks {
				sinks[r] = &reader{chunk: chunk, recv: make([]byte, len(memory))}
			}
			from := func(root int, arrived func() int) {
				run := &fabric.Run{
					Head:  wire.Data{Collective: wire.Allgather, Root: uint16(root), Seq: 1, Bytes: uint32(len(shard))},
					Count: chunks, Shard: shard,
				}
				until(t, func() bool { return run.Count == 0 && arrived() == chunks }, func() {
					done := ranks[root].Multicast(run)
					run.Head.PSN, run.Count = run.Head.PSN+uint32(done), run.Count-done
					for r, g := range ranks {
						g.Poll(sinks[r], 64)
						g.Flush()
						g.Sleep(time.Millisecond)
					}
				})
			}
			from(stranger, func() int { return int(ranks[1].Stats().Forged) + len(sinks[1].psns) })
			require.Empty(t, sinks[1].psns)
			require.EqualValues(t, chunks, ranks[1].Stats().Dropped)
			require.Equal(t, make([]byte, len(memory)), sinks[1].recv)

			for _, registered := range []bool{false, true} {
				if registered {
					release, err := ranks[0].Register(memory)
					require.NoError(t, err)
					defer func() { require.NoError(t, release()) }()
				}
				sinks[1].psns = nil
				clear(sinks[1].recv)
				from(0, func() int { return len(sinks[1].psns) })
				require.True(t, bytes.Equal(shard, sinks[1].recv[:len(shard)]))
				require.Equal(t, registered && kind == seal.Tags, ranks[0].Stats().LentBytes > 0, "what is encrypted is copied")
			}
		})
	}
}

// TestForgedProbes: of a rank that does not know the key nothing is heard, and nothing of what comes again.
func TestForgedProbes(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	const size, stranger = 3, 2
	ranks := make([]*Prober, size)
	for r := range ranks {
		ifi, err := net.InterfaceByName(fmt.Sprintf("h%d", r+1))
		require.NoError(t, err)
		key := make([]byte, seal.KeySize)
		if r == stranger {
			key[0]++
		}
		o := udp.Options{
			Rank: r, Size: size, Job: 1, Group: netip.MustParseAddr("239.7.7.9"), Port: 7979, Interface: ifi,
			Probes: seal.New(seal.Tags, key, uint32(r)),
		}
		for q := range size {
			o.Sources = append(o.Sources, netip.AddrFrom4([4]byte{10, 9, 1, byte(q + 1)}))
		}
		require.NoError(t, Fit(&o))
		ranks[r], err = OpenProber(o)
		require.NoError(t, err)
		t.Cleanup(ranks[r].Close)
	}
	// heard returns what rank 1 hears from now on, until a probe of rank 0 has counted.
	heard := func() (all []udp.Heard) {
		zeros := func(h []udp.Heard) bool { return h[0].Multicast > 0 }
		until(t, func() bool { return all != nil && zeros(all) }, func() {
			ranks[1].Listen(100*time.Millisecond, zeros)
			all = ranks[1].Heard()
		})
		return all
	}
	zero := ranks[0].port
	require.NoError(t, ranks[stranger].Multicast(2000))
	require.NoError(t, ranks[0].Multicast(2000))
	require.Equal(t, []udp.Heard{{Multicast: 2000, Multicasts: 1}, {}, {}}, heard())
	copy(zero.slot(0), zero.slot(-1))
	zero.sizes[0] = 2000 - uint32(batch.IPv4.Headers)
	require.NoError(t, zero.send(1, ibverbs.Payload{})) // again
	require.NoError(t, ranks[stranger].Multicast(2000))
	require.NoError(t, ranks[0].Multicast(600))
	require.Equal(t, []udp.Heard{{Multicast: 600, Multicasts: 1}, {}, {}}, heard())
}
