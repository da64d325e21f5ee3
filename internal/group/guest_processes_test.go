package group

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// counts are what the kernel has counted of the devices that four names.
type counts struct {
	bytes   [4]uint64 // that the interface has sent, all headers among them
	packets [4]uint64 // that the RDMA device has sent
	tcp     uint64    // bytes of lo: of connections, which are between addresses of one host in the guest
}

func count(t *testing.T) (c counts) {
	t.Helper()
	for i, name := range four {
		c.bytes[i] = readCount(t, "/sys/class/net/"+name+"/statistics/tx_bytes")
		c.packets[i] = ofDevice(t, name, "sent_pkts")
	}
	c.tcp = readCount(t, "/sys/class/net/lo/statistics/tx_bytes")
	return c
}

// ofDevice returns what soft-RoCE has counted at the device of an interface.
func ofDevice(t *testing.T, iface, counter string) uint64 {
	t.Helper()
	return readCount(t, "/sys/class/infiniband/rxe"+iface[1:]+"/ports/1/hw_counters/"+counter)
}

// readCount returns the number in a file.
func readCount(t *testing.T, path string) uint64 {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	require.NoError(t, err)
	return n
}

// ended reads the reports of ranks that have done all their rounds.
func ended(t *testing.T, kids []child) (stats []monitor.Stats) {
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
	return startRanks(t, role{
		Size: len(four), Interfaces: four, Fabric: "verbs", Timeout: timeout(t), Call: call, Rounds: rounds, Await: true,
	})
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
		t.Logf("devices sent %.4f to %.4f times the bytes of their Allgathers in %d packets or more; connections, with all "+
			"headers, %.4f of the bytes of all",
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

// TestVerbsKilled: the survivors of a rank that is killed in the midst of an operation name it.
func TestVerbsKilled(t *testing.T) { kill(t, overProcesses(t, "allgather", 0)) }

// kill kills one of four ranks in the midst of Allgathers.
func kill(t *testing.T, kids []child) {
	t.Helper()
	const victim = 2
	begin(t, kids)
	moved := count(t).bytes[0]
	systest.Eventually(t, func() bool { return count(t).bytes[0] > moved+8<<20 })
	require.NoError(t, kids[victim].cmd.Process.Kill())
	namedByAll(t, kids, victim)
}

// TestVerbsRankKilled: the others name it as soon as they do over TCP, although devices still try to send to it.
func TestVerbsRankKilled(t *testing.T) {
	needDevices(t)
	const victim = 1
	kids := startRanks(t,
		role{Size: 3, Fabric: "verbs", Interfaces: four, Timeout: time.Hour, Call: "reduce-scatter", Shard: 128 << 10})
	require.NoError(t, kids[victim].cmd.Process.Kill())
	namedByAll(t, kids, victim) // it is noticed, and not waited for
}
