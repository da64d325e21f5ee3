package group

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// needDevices skips a test where there is no guest with the devices of four.
func needDevices(t *testing.T) {
	t.Helper()
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
}

// timeout is the time limit of groups in the guest: 30 s, or MCAST_TEST_TIMEOUT, as for the slower race detector.
func timeout(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("MCAST_TEST_TIMEOUT")
	if text == "" {
		return 30 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// overDevices joins ranks of this process by RDMA devices, each on its own interface or several on one. The ranks take
// the networks by turns, beginning with the first.
func overDevices(
	t *testing.T, networks []hostnet.Network, interfaces []string, change func(*config.Settings),
) []*Group {
	t.Helper()
	needDevices(t)
	p := len(interfaces)
	endpoints, blobs, groups := make([]*Endpoint, p), make([][]byte, p), make([]*Group, p)
	for r := range p {
		s := config.Default()
		s.Fabric, s.Interface, s.Timeout = "verbs", interfaces[r], timeout(t)
		if change != nil {
			change(&s)
		}
		var err error
		endpoints[r], err = Open(Options{Rank: r, Size: p, Settings: s, Network: networks[r%len(networks)]})
		require.NoError(t, err)
		blobs[r] = endpoints[r].Blob()
	}
	each(t, p, func(r int) (err error) {
		groups[r], err = endpoints[r].Join(context.Background(), blobs)
		return err
	})
	t.Cleanup(func() { each(t, p, func(r int) error { return groups[r].Close() }) })
	return groups
}

// collect has ranks do all collective operations and compares every byte.
func collect(t *testing.T, g []*Group) {
	t.Helper()
	each(t, len(g), func(r int) error { return eachOperation(g[r], 1<<20) })
}

// eachOperation is one rank's part of every collective operation, in three sizes up to most. It compares every byte.
func eachOperation(g *Group, most int) error {
	p, r := g.Size(), g.Rank()
	for i, n := range []int{8, 4096, most} {
		all, recv, root := make([]byte, p*n), make([]byte, p*n), make([]byte, n)
		fill(all, i)
		sum := recvLike(p*n, uint32(p*(p-1)/2))
		for _, op := range []struct {
			name      string
			run       func() error
			got, want []byte
		}{
			{"Allgather", func() error { return g.Allgather(all[r*n:(r+1)*n], recv) }, recv, all},
			{"Broadcast", func() error {
				if r == 1 {
					copy(root, all)
				}
				return g.Broadcast(root, 1)
			}, root, all[:n]},
			{"Reduce-Scatter", func() error {
				return g.ReduceScatter(recvLike(p*n, uint32(r)), root, reduce.I32, reduce.Sum, 0)
			}, root, sum[:n]},
			{"Allreduce", func() error { return g.Allreduce(recvLike(p*n, uint32(r)), recv, reduce.I32, reduce.Sum, 0) }, recv,
				sum},
		} {
			if err := op.run(); err != nil {
				return fmt.Errorf("%s of %d bytes: %w", op.name, n, err)
			}
			if !bytes.Equal(op.got, op.want) {
				return fmt.Errorf("%s of %d bytes: wrong ones at rank %d", op.name, n, r)
			}
		}
	}
	return nil
}

var four = []string{"h1", "h2", "h3", "h4"}

// tries bounds how often a test is tried that goes otherwise if some process did not run for long: ranks that do not
// hear others get their data from rank to rank for a while.
const tries = 20

// TestVerbs: every byte arrives, and is multicast once.
func TestVerbs(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, four, nil)
	require.Equal(t, "verbs", g[0].Info().Fabric)
	const n = 4 << 20
	once := func() bool {
		before := g[2].Stats()
		each(t, 4, func(r int) error {
			return g[r].Allgather(make([]byte, n), make([]byte, 4*n))
		})
		s := g[2].Stats()
		sent := float64(s.GatherSentBytes-before.GatherSentBytes) / n
		t.Logf("an Allgather of %d bytes: %.4f times as many sent, %d bytes of control messages and repairs", n, sent,
			s.GatherControlBytes-before.GatherControlBytes)
		return sent > 1 && sent <= 1.03
	}
	for try := 1; !once(); try++ {
		require.Less(t, try, tries)
	}
	require.Equal(t, fabrics.Multicast, g[2].Info().Allgather)
	collect(t, g)
}

// TestVerbsLossy: lost chunks come by repairs.
func TestVerbsLossy(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, four, func(s *config.Settings) { s.Loss = 0.02 })
	collect(t, g)
	s := g[0].Stats()
	t.Logf("%d chunks lost on purpose", s.ChunksInjected)
	require.Positive(t, s.ChunksInjected)
}

// TestVerbsShared: ranks may share a device.
func TestVerbsShared(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, []string{"h1", "h1", "h2", "h2"}, nil)
	collect(t, g)
	for try := 1; g[2].Info().Allgather != fabrics.Multicast; try++ {
		require.Less(t, try, tries)
		collect(t, g)
	}
}

// lossy has links lose what comes to interfaces.
func lossy(t *testing.T, share string, interfaces ...string) {
	t.Helper()
	for _, name := range interfaces {
		end := "p" + name[1:]
		out, err := exec.Command("tc", "qdisc", "add", "dev", end, "root", "netem", "loss", share).CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Cleanup(func() { require.NoError(t, exec.Command("tc", "qdisc", "del", "dev", end, "root").Run()) })
	}
}
