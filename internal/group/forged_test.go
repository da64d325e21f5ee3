package group

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// TestForgedDatagramsEndNoGroup sends 10,000 well-formed datagrams of other operations than the
// ranks' from a rank's host, past every filter. They change nothing, and are counted.
func TestForgedDatagramsEndNoGroup(t *testing.T) {
	const ranks, shard, forgeries = 3, 64, 10_000
	g := assemble(t, ranks, func(s *config.Settings) { s.Fabric = "udp" })
	group, port := g[0].plan.MulticastGroup()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF,
		&unix.IPMreqn{Address: [4]byte{127, 0, 0, 1}, Ifindex: 1})) // lo
	r := rand.New(rand.NewPCG(1, 2))
	operation := func(rank, i int) error {
		want := bytes.Repeat([]byte{byte(i), byte(i + 1), byte(i + 2)}, shard)
		got := make([]byte, ranks*shard)
		err := g[rank].Allgather(want[rank*shard:][:shard], got)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("operation %d: wrong bytes", i)
		}
		return err
	}
	sent := 0
	for i := range 100 {
		for ; sent < (i+1)*forgeries/100; sent++ {
			h := wire.Data{
				Job: g[0].plan.Job, Collective: wire.Collective(2 + r.IntN(2)), Root: uint16(r.IntN(ranks)),
				Seq: uint32(i + r.IntN(10)), Bytes: uint32(1 + r.IntN(shard-1)), Arena: uint32(64 * r.IntN(200)),
			}
			b := make([]byte, wire.DataSize+int(h.Bytes))
			h.Put(b)
			require.NoError(t, unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Port: int(port), Addr: group.As4()}))
		}
		each(t, ranks, func(rank int) error { return operation(rank, i) })
	}
	for rank := range ranks {
		assert.Positive(t, g[rank].Stats().ChunksMismatched, "rank %d", rank)
	}
	each(t, ranks, func(rank int) error { return g[rank].Close() })
}

// TestForgedChunks forges chunks of the very operations that ranks are in, of the right size and number, and sends
// again chunks that ranks have sent. The forger is on a rank's host and knows all but the secret, or the checksum of
// his chunks. All ranks wait for a late one meanwhile, so that the forged chunks come first. They change nothing.
func TestForgedChunks(t *testing.T) {
	for name, how := range sealed {
		t.Run(name, func(t *testing.T) { standsForgeries(t, how) })
	}
}

func standsForgeries(t *testing.T, how func(*config.Settings)) {
	const ranks, shard, rounds, forgeries = 3, 100_000, 20, 50
	g := assemble(t, ranks, how)
	group, port := g[0].plan.MulticastGroup()
	to := &unix.SockaddrInet4{Port: int(port), Addr: group.As4()}
	spy := joined(t, group.As4(), int(port))
	r := rand.New(rand.NewPCG(3, 4))
	var recorded [][]byte
	record := func() {
		for len(recorded) < 500 {
			b := make([]byte, 64<<10)
			n, _, err := unix.Recvfrom(spy, b, unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			recorded = append(recorded, b[:n])
		}
	}
	for round := range rounds {
		sends := make([][]byte, ranks)
		var want []byte
		for rank := range ranks {
			sends[rank] = make([]byte, shard)
			fill(sends[rank], round*ranks+rank)
			want = append(want, sends[rank]...)
		}
		late := r.IntN(ranks)
		attacked := make(chan struct{})
		go func() {
			defer close(attacked)
			for range forgeries {
				h := wire.Data{
					Job: g[0].plan.Job, Collective: wire.Allgather, Root: uint16(late), Seq: uint32(round),
					PSN: uint32(r.IntN(3)), Bytes: shard,
				}
				b := make([]byte, wire.DataSize+seal.New(seal.Tags, make([]byte, 32), 0).Size()+g[0].Info().ChunkBytes)
				h.Put(b)
				if len(recorded) > 0 && r.IntN(2) == 0 { // its tag is right, its number is not, or no more
					copy(b, recorded[r.IntN(len(recorded))])
				}
				if r.IntN(4) == 0 {
					b = b[:r.IntN(len(b))]
				}
				if err := unix.Sendto(spy, b, 0, to); err != nil {
					t.Error(err)
				}
			}
		}()
		each(t, ranks, func(rank int) error {
			if rank == late {
				<-attacked
			}
			got := make([]byte, ranks*shard)
			if err := g[rank].Allgather(sends[rank], got); err != nil {
				return err
			}
			if !bytes.Equal(want, got) {
				return fmt.Errorf("round %d: wrong bytes", round)
			}
			return nil
		})
		record()
	}
	require.NotEmpty(t, recorded)
	for rank := range ranks {
		assert.Positive(t, g[rank].Stats().ChunksMismatched, "rank %d", rank)
	}
	each(t, ranks, func(rank int) error { return g[rank].Close() })
}

// joined returns a socket that receives the datagrams of a group on loopback, and sends to it.
func joined(t *testing.T, group [4]byte, port int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	lo := [4]byte{127, 0, 0, 1}
	require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: group}))
	require.NoError(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
		&unix.IPMreqn{Multiaddr: group, Address: lo, Ifindex: 1}))
	require.NoError(t,
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Address: lo, Ifindex: 1}))
	return fd
}
