package group

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
	"github.com/torch-mcast/torch-mcast/internal/transport/verbs"
)

// needDevices skips a test where there is no guest with the devices of four.
func needDevices(t *testing.T) {
	t.Helper()
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
}

// overDevices joins ranks of this process by RDMA devices, each on its own interface or several on one, over networks
// of which the first is the first rank's, and so on by turns.
func overDevices(t *testing.T, networks []Network, interfaces []string, change func(*config.Settings)) []*Group {
	t.Helper()
	needDevices(t)
	p := len(interfaces)
	endpoints, blobs, groups := make([]*Endpoint, p), make([][]byte, p), make([]*Group, p)
	for r := range p {
		s := config.Default()
		s.Fabric, s.Interface, s.Timeout = "verbs", interfaces[r], 30*time.Second
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
	each(t, len(g), func(r int) error { return eachOperation(g[r]) })
}

// eachOperation is one rank's part of every collective operation, in three sizes. It compares every byte.
func eachOperation(g *Group) error {
	p, r := g.Size(), g.Rank()
	for i, n := range []int{8, 4096, 1 << 20} {
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
			{"Reduce-Scatter", func() error { return g.ReduceScatter(recvLike(p*n, uint32(r)), root, reduce.I32, reduce.Sum, 0) }, root, sum[:n]},
			{"Allreduce", func() error { return g.Allreduce(recvLike(p*n, uint32(r)), recv, reduce.I32, reduce.Sum, 0) }, recv, sum},
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

// tries bounds how often something is tried that goes otherwise where somebody did not run for long: ranks that do not
// hear others take what they send from rank to rank for a while.
const tries = 20

// TestVerbs: every byte arrives, and is multicast once.
func TestVerbs(t *testing.T) {
	g := overDevices(t, []Network{nil}, four, nil)
	require.Equal(t, "verbs", g[0].Info().Fabric)
	const n = 4 << 20
	once := func() bool {
		before := g[2].Stats()
		each(t, 4, func(r int) error {
			return g[r].Allgather(make([]byte, n), make([]byte, 4*n))
		})
		s := g[2].Stats()
		sent := float64(s.GatherSentBytes-before.GatherSentBytes) / n
		t.Logf("an Allgather of %d bytes: %.4f times as many sent, %d bytes of control messages and repairs", n, sent, s.GatherControlBytes-before.GatherControlBytes)
		return sent > 1 && sent <= 1.03
	}
	for try := 1; !once(); try++ {
		require.Less(t, try, tries)
	}
	require.Equal(t, byMulticast, g[2].Info().Allgather)
	collect(t, g)
}

// TestVerbsLossy: what is lost comes by repairs.
func TestVerbsLossy(t *testing.T) {
	g := overDevices(t, []Network{nil}, four, func(s *config.Settings) { s.Loss = 0.02 })
	collect(t, g)
	s := g[0].Stats()
	t.Logf("%d chunks lost on purpose", s.ChunksInjected)
	require.Positive(t, s.ChunksInjected)
}

// TestVerbsShared: ranks may share a device.
func TestVerbsShared(t *testing.T) {
	g := overDevices(t, []Network{nil}, []string{"h1", "h1", "h2", "h2"}, nil)
	collect(t, g)
	for try := 1; g[2].Info().Allgather != byMulticast; try++ {
		require.Less(t, try, tries)
		collect(t, g)
	}
}

// boastful is a network whose devices have 16 slots to receive in, and claim to have a thousand.
type boastful struct{ kernel }

func (boastful) verbs() rdmaDatagrams { return few{} }

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
	g := overDevices(t, []Network{boastful{}}, four, nil)
	repaired := func() (chunks uint64) {
		for r := range g {
			chunks += g[r].Stats().ChunksRepaired
		}
		return chunks
	}
	// Whether a ring overflows is up to who runs when: mostly it does at once.
	for try := 1; repaired() == 0; try++ {
		require.Less(t, try, tries)
		collect(t, g)
	}
	t.Logf("%d chunks came by repairs", repaired())
}

// posing is the network of a host of that name, whose software devices auto takes for hardware unless it is strict.
type posing struct {
	kernel
	name         string
	none, strict bool
}

func (p posing) Host() string   { return p.name + "/1/" }
func (p posing) hardware() bool { return !p.none }
func (p posing) verbs() rdmaDatagrams {
	if p.strict {
		return devices{}
	}
	return unasked{}
}

type unasked struct{ devices }

func (unasked) Try(o *udp.Options, ranks int) error {
	_, err := verbs.Try(o, ranks)
	return err
}

// TestVerbsAuto: auto takes RDMA devices if all ranks have one that works and multicast by them passes, and else UDP, on
// all ranks alike and with the reason.
func TestVerbsAuto(t *testing.T) {
	needDevices(t)
	require.False(t, kernel{}.hardware(), "the guest's devices are software")
	a, b, c, d := posing{name: "a"}, posing{name: "b"}, posing{name: "c"}, posing{name: "d"}
	hosts := []Network{a, b, c, d}
	for _, row := range []struct {
		name     string
		networks []Network
		lose     bool // what comes to the last device
		fabric   string
		reason   string
	}{
		{"all", hosts, false, "verbs", "every rank has an RDMA device, and multicast by them reaches every rank"},
		{"two ranks a host", []Network{a, a, b, b}, false, "verbs", "every rank has an RDMA device, and multicast by them reaches every rank"},
		{"one has none", []Network{a, b, c, posing{name: "d", none: true}}, false, "udp", "rank 2 has an RDMA device, rank 3 none"},
		{"one does not serve", []Network{a, b, posing{name: "c", strict: true}, d}, false, "udp", "no RDMA: rank 2: device rxe3 is software"},
		{"one hears nothing", hosts, true, "udp", "no RDMA: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.lose {
				lossy(t, "100%", four[3])
			}
			join := func() []*Group {
				return overDevices(t, row.networks, four, func(s *config.Settings) { s.Fabric = "auto" })
			}
			g := join()
			for try := 1; row.fabric == "verbs" && g[0].Info().Fabric != row.fabric; try++ {
				t.Log(g[0].Info().Reason)
				require.Less(t, try, tries)
				g = join()
			}
			for r := range g {
				info := g[r].Info()
				require.Equal(t, row.fabric, info.Fabric, "rank %d", r)
				require.Contains(t, info.Reason, row.reason, "rank %d", r)
				require.Equal(t, g[0].Info().Reason, info.Reason)
			}
			collect(t, g)
		})
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

// counts are what the kernel has counted of the devices that four names.
type counts struct {
	bytes   [4]uint64 // that the interface has sent, all headers among them
	packets [4]uint64 // that the RDMA device has sent
	tcp     uint64    // bytes of lo: of connections, which are between addresses of one host in the guest
}

func count(t *testing.T) (c counts) {
	t.Helper()
	read := func(path string) (n uint64) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		n, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		require.NoError(t, err)
		return n
	}
	for i, name := range four {
		c.bytes[i] = read("/sys/class/net/" + name + "/statistics/tx_bytes")
		c.packets[i] = read("/sys/class/infiniband/rxe" + name[1:] + "/ports/1/hw_counters/sent_pkts")
	}
	c.tcp = read("/sys/class/net/lo/statistics/tx_bytes")
	return c
}

// ended reads the reports of ranks that have done all their rounds.
func ended(t *testing.T, kids []child) (stats []Stats) {
	t.Helper()
	for r, k := range kids {
		line, err := k.out.ReadString('\n')
		require.NoError(t, err, "rank %d ended without a report", r)
		var rep report
		require.NoError(t, json.Unmarshal([]byte(line), &rep))
		require.Empty(t, rep.Error, "rank %d", r)
		require.NoError(t, k.cmd.Wait(), "rank %d", r)
		stats = append(stats, rep.Stats)
	}
	return stats
}

// overProcesses starts a process for each device, and returns once they have formed a group.
func overProcesses(t *testing.T, call string, rounds int) []child {
	t.Helper()
	needDevices(t)
	return startRanks(t, role{Size: len(four), Interfaces: four, Fabric: "verbs", Timeout: 30 * time.Second, Call: call, Rounds: rounds, Await: true})
}

func begin(t *testing.T, kids []child) {
	t.Helper()
	for _, k := range kids {
		require.NoError(t, k.in.Close())
	}
}

// TestVerbsProcesses: four processes with a device each. The kernel counts what leaves the devices: each byte once.
func TestVerbsProcesses(t *testing.T) {
	const rounds, n = 2, 4 << 20
	once := func() bool {
		kids := overProcesses(t, "own", rounds)
		before := count(t)
		begin(t, kids)
		ended(t, kids)
		after := count(t)
		least, most, packets := math.Inf(1), 0.0, uint64(math.MaxUint64)
		for i := range four {
			sent := float64(after.bytes[i]-before.bytes[i]) / (rounds * n)
			least, most, packets = min(least, sent), max(most, sent), min(packets, after.packets[i]-before.packets[i])
		}
		// Credits and the like are a few bytes each, in a packet of TCP and with another to acknowledge it. Chunks would be 3
		// times the bytes: each goes to three ranks.
		tcp := float64(after.tcp-before.tcp) / (rounds * n * float64(len(four)))
		t.Logf("devices sent %.4f to %.4f times the bytes of their Allgathers in %d packets or more; connections, with all headers, %.4f of the bytes of all",
			least, most, packets, tcp)
		return least > 1 && most <= 1.03 && packets >= rounds*n/4096 && tcp < 0.5
	}
	for try := 1; !once(); try++ {
		require.Less(t, try, tries)
	}
}

// TestVerbsLink: links that lose 2 % of all packets, between processes that do every operation.
func TestVerbsLink(t *testing.T) {
	kids := overProcesses(t, "each", 1)
	lossy(t, "2%", four...)
	begin(t, kids)
	var repaired uint64
	for _, s := range ended(t, kids) {
		repaired += s.ChunksRepaired
	}
	t.Logf("%d chunks came by repairs", repaired)
	require.Positive(t, repaired)
}

// TestVerbsKilled: the survivors of a rank that is killed in the midst of an operation name it, within MCAST_TIMEOUT.
func TestVerbsKilled(t *testing.T) { kill(t, overProcesses(t, "allgather", 0)) }

// kill kills one of four ranks in the midst of Allgathers.
func kill(t *testing.T, kids []child) {
	t.Helper()
	const victim = 2
	begin(t, kids)
	moved := count(t).bytes[0]
	require.Eventually(t, func() bool { return count(t).bytes[0] > moved+8<<20 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, kids[victim].cmd.Process.Kill())
	start := time.Now()
	namedByAll(t, kids, victim)
	t.Logf("named after %v", time.Since(start))
	require.Less(t, time.Since(start), 30*time.Second)
}

// TestVerbsRegistered: a device sends from memory that is registered, nothing is registered after the first step, and what others
// receive are the bytes that were there, though the sender fills its shard anew as soon as it may.
func TestVerbsRegistered(t *testing.T) {
	g := overDevices(t, []Network{nil}, four, nil)
	const n = 100_000 // the last chunk is short
	p := len(g)
	shards := make([][]byte, p)
	memories := make([]*Memory, p)
	for r := range p {
		shards[r] = make([]byte, n)
		var err error
		memories[r], err = g[r].Register(shards[r])
		require.NoError(t, err)
	}
	step := func(i int) {
		each(t, p, func(r int) error {
			recv, want := make([]byte, p*n), make([]byte, p*n)
			for root := range p {
				fill(want[root*n:][:n], 100*i+root)
			}
			fill(shards[r], 100*i+r)
			if err := g[r].Allgather(shards[r], recv); err != nil {
				return err
			}
			fill(shards[r], 99) // it is the caller's again
			require.True(t, bytes.Equal(want, recv), "Allgather of step %d, rank %d", i, r)
			fill(want[:n], 200+i)
			if r == 1 {
				copy(shards[r], want)
			}
			if err := g[r].Broadcast(shards[r], 1); err != nil {
				return err
			}
			require.True(t, bytes.Equal(want[:n], shards[r]), "Broadcast of step %d, rank %d", i, r)
			return nil
		})
	}
	step(0)
	registered, steps := g[1].Stats().Registrations, 0
	lent := func() bool { // whether the device has read every byte of a step's shards by itself
		before := g[1].Stats().GatherLentBytes
		steps++
		step(steps)
		return g[1].Stats().GatherLentBytes == before+2*n
	}
	for range 4 {
		for try := 1; !lent(); try++ {
			require.Less(t, try, tries)
		}
	}
	s := g[1].Stats()
	require.Equal(t, registered, s.Registrations, "nothing is registered in the steady state")
	require.Zero(t, s.RegistrationsRefused)

	for r := range p {
		require.NoError(t, memories[r].Release())
		require.NoError(t, memories[r].Release(), "again")
	}
	step(steps + 1)
	require.Equal(t, s.GatherLentBytes, g[1].Stats().GatherLentBytes, "it is copied again")
}

// TestVerbsRefused: memory that cannot be registered goes by copy, and that is said once.
func TestVerbsRefused(t *testing.T) {
	g := overDevices(t, []Network{nil}, []string{"h1", "h2"}, nil)
	b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	require.NoError(t, unix.Munmap(b)) // memory that nobody can lock
	for range 2 {
		m, err := g[0].Register(b)
		require.NoError(t, err)
		require.NoError(t, m.Release())
	}
	require.EqualValues(t, 2, g[0].Stats().RegistrationsRefused)
	notes := strings.Join(g[0].Info().Notes, "\n")
	require.Equal(t, 1, strings.Count(notes, "rank 0 cannot register 1048576 bytes"), notes)
	require.Contains(t, notes, "device rxe1")
	_, err = g[0].Register(nil)
	require.ErrorContains(t, err, "want 1 byte at least")
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
	g := overDevices(t, []Network{nil}, four, nil)
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
	g := overDevices(t, []Network{nil}, four[:3], nil)
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
	needDevices(t)
	const victim, timeout = 1, 60 * time.Second
	kids := startRanks(t, role{Size: 3, Fabric: "verbs", Interfaces: four, Timeout: timeout, Call: "reduce-scatter", Shard: 128 << 10})
	require.NoError(t, kids[victim].cmd.Process.Kill())
	start := time.Now()
	namedByAll(t, kids, victim)
	t.Logf("named after %v", time.Since(start))
	require.Less(t, time.Since(start), timeout/2, "it is noticed, and not waited for")
}
