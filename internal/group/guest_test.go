package group

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// overDevices joins ranks of this process by RDMA devices, each on its own interface or several on one, over a network.
func overDevices(t *testing.T, n Network, interfaces []string, change func(*config.Settings)) []*Group {
	t.Helper()
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	p := len(interfaces)
	endpoints, blobs, groups := make([]*Endpoint, p), make([][]byte, p), make([]*Group, p)
	for r := range p {
		s := config.Default()
		s.Fabric, s.Interface, s.Timeout = "verbs", interfaces[r], 30*time.Second
		if change != nil {
			change(&s)
		}
		var err error
		endpoints[r], err = Open(Options{Rank: r, Size: p, Settings: s, Network: n})
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
	p := len(g)
	for i, n := range []int{8, 4096, 1 << 20} {
		want := make([]byte, p*n)
		fill(want, i)
		each(t, p, func(r int) error {
			recv := make([]byte, p*n)
			if err := g[r].Allgather(want[r*n:(r+1)*n], recv); err != nil {
				return err
			}
			require.Equal(t, want, recv, "Allgather of %d bytes, rank %d", n, r)
			root := make([]byte, n)
			if r == 1 {
				copy(root, want)
			}
			if err := g[r].Broadcast(root, 1); err != nil {
				return err
			}
			require.Equal(t, want[:n], root, "Broadcast of %d bytes, rank %d", n, r)
			sums := make([]byte, n)
			if err := g[r].ReduceScatter(recvLike(p*n, uint32(r)), sums, reduce.I32, reduce.Sum, 0); err != nil {
				return err
			}
			require.Equal(t, recvLike(n, uint32(p*(p-1)/2)), sums, "Reduce-Scatter of %d bytes, rank %d", n, r)
			all := make([]byte, p*n)
			if err := g[r].Allreduce(recvLike(p*n, uint32(r)), all, reduce.I32, reduce.Sum, 0); err != nil {
				return err
			}
			require.Equal(t, recvLike(p*n, uint32(p*(p-1)/2)), all, "Allreduce of %d bytes, rank %d", p*n, r)
			return nil
		})
	}
}

var four = []string{"h1", "h2", "h3", "h4"}

// TestVerbs: every byte arrives, and is multicast once.
func TestVerbs(t *testing.T) {
	g := overDevices(t, nil, four, nil)
	require.Equal(t, "verbs", g[0].Info().Fabric)
	require.Equal(t, byMulticast, g[0].Info().Allgather)
	const n = 4 << 20
	before := g[2].Stats()
	each(t, 4, func(r int) error {
		return g[r].Allgather(make([]byte, n), make([]byte, 4*n))
	})
	s := g[2].Stats()
	sent := float64(s.GatherSentBytes - before.GatherSentBytes)
	t.Logf("an Allgather of %d bytes: %.4f times as many sent, %d bytes of control messages and repairs", n, sent/n, s.GatherControlBytes-before.GatherControlBytes)
	require.Greater(t, sent, float64(n))
	require.LessOrEqual(t, sent, 1.03*n)
	collect(t, g)
}

// TestVerbsLossy: what is lost comes by repairs.
func TestVerbsLossy(t *testing.T) {
	g := overDevices(t, nil, four, func(s *config.Settings) { s.Loss = 0.02 })
	collect(t, g)
	s := g[0].Stats()
	t.Logf("%d chunks lost on purpose", s.ChunksInjected)
	require.Positive(t, s.ChunksInjected)
}

// TestVerbsShared: ranks may share a device.
func TestVerbsShared(t *testing.T) {
	g := overDevices(t, nil, []string{"h1", "h1", "h2", "h2"}, nil)
	require.Equal(t, byMulticast, g[0].Info().Allgather)
	collect(t, g)
}

// boastful is a network whose devices have 16 slots to receive in, and claim to have a thousand.
type boastful struct{ kernel }

func (boastful) verbs() datagrams { return few{} }

type few struct{ devices }

func (few) Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error) {
	own := *o
	own.Window = 16 * own.Chunk
	g, err := devices{}.Gather(&own, control)
	if err != nil {
		return nil, err
	}
	return claiming{g}, nil
}

type claiming struct{ fabric.Gather }

func (c claiming) Traits() fabric.Traits {
	traits := c.Gather.Traits()
	traits.Window = 1024
	return traits
}

// TestVerbsOverflow: what finds no slot at a receiver is lost without a word, and comes by repairs.
func TestVerbsOverflow(t *testing.T) {
	g := overDevices(t, boastful{}, four, nil)
	collect(t, g)
	var repairs uint64
	for r := range g {
		repairs += g[r].Stats().ChunksRepaired
	}
	t.Logf("%d chunks came by repairs", repairs)
	require.Positive(t, repairs)
}

// counted returns what all RDMA devices have counted of something.
func counted(t *testing.T, what string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/sys/class/infiniband/*/ports/1/hw_counters/" + what)
	require.NoError(t, err)
	require.NotEmpty(t, files, what)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		one, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		n += one
	}
	return n
}

// TestVerbsReduceScatter: what ranks send each other for it goes through their devices, and none of it is refused for want of a buffer.
func TestVerbsReduceScatter(t *testing.T) {
	g := overDevices(t, nil, four, nil)
	const n = 256 << 10
	sent, refused, start := counted(t, "sent_pkts"), counted(t, "send_rnr_err"), time.Now()
	each(t, 4, func(r int) error {
		sums := make([]byte, n)
		if err := g[r].ReduceScatter(recvLike(4*n, uint32(r)), sums, reduce.I32, reduce.Sum, 0); err != nil {
			return err
		}
		require.Equal(t, recvLike(n, 6), sums)
		return nil
	})
	packets := counted(t, "sent_pkts") - sent
	t.Logf("%d packets for %d bytes, in %v", packets, 4*3*n, time.Since(start))
	require.GreaterOrEqual(t, packets, 4*3*n/4096)
	require.Equal(t, refused, counted(t, "send_rnr_err"))
}

// TestVerbsNetworkLoses: devices repeat what the network loses of streams. Where they lose that as well, a round takes seconds.
func TestVerbsNetworkLoses(t *testing.T) {
	g := overDevices(t, nil, four[:3], nil)
	for _, args := range [][]string{{"add", "netem", "loss", "0.3%"}, {"del"}} {
		lose := func() {
			for _, port := range []string{"p1", "p2", "p3"} {
				out, err := exec.Command("tc", append([]string{"qdisc", args[0], "dev", port, "root"}, args[1:]...)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
		}
		if args[0] == "add" {
			lose()
		} else {
			t.Cleanup(lose)
		}
	}
	gaps := counted(t, "out_of_seq_request")
	const n = 256 << 10
	for i := 0; i < 3 || counted(t, "out_of_seq_request") == gaps; i++ {
		require.Less(t, i, 100, "nothing was lost")
		start := time.Now()
		each(t, 3, func(r int) error {
			sums, all := make([]byte, n), make([]byte, 3*n)
			if err := g[r].ReduceScatter(recvLike(3*n, uint32(r+i)), sums, reduce.I32, reduce.Sum, 0); err != nil {
				return err
			}
			require.Equal(t, recvLike(n, uint32(3+3*i)), sums)
			if err := g[r].Allreduce(recvLike(3*n, uint32(r+i)), all, reduce.I32, reduce.Sum, 0); err != nil {
				return err
			}
			require.Equal(t, recvLike(3*n, uint32(3+3*i)), all)
			return nil
		})
		t.Logf("round %d: %v, %d gaps so far", i, time.Since(start), counted(t, "out_of_seq_request")-gaps)
	}
}

// TestVerbsRankKilled: the others name it, as soon as they do over TCP, whatever devices still try to send it.
func TestVerbsRankKilled(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	const victim, timeout = 1, 60 * time.Second
	kids := startRanks(t, role{Size: 3, Fabric: "verbs", Interfaces: four, Timeout: timeout, Call: "reduce-scatter", Shard: 128 << 10})
	require.NoError(t, kids[victim].cmd.Process.Kill())
	start := time.Now()
	namedByAll(t, kids, victim)
	t.Logf("named after %v", time.Since(start))
	require.Less(t, time.Since(start), timeout/2, "it is noticed, and not waited for")
}
