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
)

// TestForgedDatagramsEndNoGroup has somebody on a rank's host, whose datagrams pass every filter,
// send 10,000 that are well-formed but of other operations than the ranks'. They change nothing,
// and are counted.
func TestForgedDatagramsEndNoGroup(t *testing.T) {
	const ranks, shard, forgeries = 3, 64, 10_000
	g := assemble(t, ranks, func(s *config.Settings) { s.Fabric = "udp" })
	group, port := g[0].agreed.group()
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
				Job: g[0].agreed.job, Collective: wire.Collective(2 + r.IntN(2)), Root: uint16(r.IntN(ranks)),
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
