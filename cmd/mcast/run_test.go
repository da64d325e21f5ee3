package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bench"
	"github.com/torch-mcast/torch-mcast/internal/cli/clitest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestMain(m *testing.M) { clitest.Main(main, m.Run) }

// mcast prepares a run of this program.
var mcast = clitest.Command

// results reads the rows of mcast bench.
var results = clitest.Rows[bench.Result]

func TestBench(t *testing.T) {
	for i, fabric := range []string{"shm", "udp"} {
		for k, args := range [][]string{
			{"allgather", "--bytes", "1:64K", "--step", "256"},
			{"allgather", "--bytes", "1M", "--in-place", "--ranks", "3"},
			{"broadcast", "--bytes", "100003", "--root", "2"},
			{"reducescatter", "--bytes", "4:256K", "--step", "256"},
			{"reducescatter", "--bytes", "1002", "--dtype", "bf16", "--op", "avg", "--in-place", "--ranks", "3"},
			{"allreduce", "--bytes", "4:256K", "--step", "256"},
			{"allreduce", "--bytes", "3M", "--dtype", "f16", "--op", "max", "--in-place", "--ranks", "3"},
			{"overlap", "--bytes", "256K", "--ranks", "2"},
			{"allgather", "--bytes", "0", "--ranks", "1"},
			{"reducescatter", "--bytes", "0", "--ranks", "2"},
			{"allgather", "--bytes", "1,300K", "--window", "100001", "--inflight", "3"},
			{"allgather", "--bytes", "64K", "--window", "16K", "--in-place", "--ranks", "3"},
			{"reducescatter", "--bytes", "4,300K", "--window", "100004"},
			{"reducescatter", "--bytes", "64K", "--window", "1G", "--in-place", "--inflight", "1"},
		} {
			if sweep := strings.Contains(args[2], ":"); !sweep && k%2 != i {
				continue // bench does the same over either fabric
			}
			t.Run(fabric+" "+strings.Join(args, " "), func(t *testing.T) {
				cmd, stdout, stderr := mcast(t, nil,
					append([]string{"bench", "--fabric", fabric, "--iters", "3", "--warmup", "1", "--json"}, args...)...)
				require.NoError(t, cmd.Run(), stderr)
				all := results(t, stdout.Bytes())
				require.NotEmpty(t, all)
				for _, r := range all {
					require.Equal(t, fabric, r.Fabric)
					require.Zero(t, r.Wrong)
					require.Equal(t, 3, r.Iters)
					require.Positive(t, r.TimeUS)
					require.LessOrEqual(t, r.MinUS, r.TimeUS)
					require.LessOrEqual(t, r.TimeUS, r.MaxUS)
					if r.Bytes >= 1<<10 && r.Ranks > 1 && r.Collective == "allgather" {
						require.GreaterOrEqual(t, r.SentRatio, 1.0)
					}
				}
				if args[0] == "overlap" {
					require.Len(t, all, 3)
					require.Positive(t, all[2].GatherWaits.Total())
					require.Positive(t, all[2].ReduceWaits.Total())
					require.InDelta(t, all[0].TimeUS+all[1].TimeUS, all[2].SumAloneUS, 1e-6)
				}
			})
		}
	}
}

func TestBenchWithLoss(t *testing.T) {
	// ranks that do not run for a while take the network's multicast to be lost, and use none
	systest.Eventually(t, func() bool {
		cmd, stdout, stderr := mcast(t, []string{"MCAST_CHUNK=1000"}, "bench", "allgather", "--fabric", "udp", "--bytes",
			"1M", "--iters", "2", "--loss", "0.05", "--json")
		require.NoError(t, cmd.Run(), stderr)
		all := results(t, stdout.Bytes())
		require.Len(t, all, 1)
		require.Zero(t, all[0].Wrong)
		return all[0].ChunksInjected > 0 && all[0].ChunksLost > 0
	})
}

// TestBenchStartsASwitch reads what ranks and switch have counted: every byte of
// every contribution that no owner keeps went through it, once.
func TestBenchStartsASwitch(t *testing.T) {
	for _, args := range [][]string{
		{"reducescatter", "--bytes", "256K,1M"},
		{"reducescatter", "--bytes", "100002", "--dtype", "bf16", "--op", "avg", "--in-place", "--ranks", "3"},
		{"reducescatter", "--bytes", "64K", "--fabric", "shm", "--ranks", "2"},
		{"allreduce", "--bytes", "256K", "--dtype", "i32"},
		{"overlap", "--bytes", "256K", "--ranks", "2"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			cmd, stdout, stderr := mcast(t, nil,
				append([]string{"bench", "--switch", "--fabric", "udp", "--iters", "3", "--warmup", "1", "--json"}, args...)...)
			require.NoError(t, cmd.Run(), stderr)
			lines := bytes.SplitAfter(bytes.TrimSpace(stdout.Bytes()), []byte("\n"))
			var use bench.NodeUse
			require.NoError(t, json.Unmarshal(lines[len(lines)-1], &use))
			var contributed float64
			for _, r := range results(t, bytes.Join(lines[:len(lines)-1], nil)) {
				require.Zero(t, r.Wrong)
				if r.Collective == "allgather" {
					require.Empty(t, r.Algorithm)
					continue
				}
				require.Equal(t, "switch", r.Algorithm, r.AlgorithmReason)
				require.GreaterOrEqual(t, r.SentToLaw, 1.0)
				require.GreaterOrEqual(t, r.ReceivedToLaw, 1.0)
				shards := r.Ranks
				if r.Type != "bf16" {
					shards-- // owners keep theirs
				}
				contributed += float64((3 + 1) * r.Ranks * shards * r.Bytes)
			}
			require.InDelta(t, contributed, use.SummedBytes, 0)
			require.Positive(t, use.CPUSeconds)
			require.Positive(t, use.PerCore)
		})
	}
}

func TestBenchUsesTheSwitchThatIsThere(t *testing.T) {
	address := runSwitch(t, nil).out.match(t, `^listening on (.*)$`)
	cmd, stdout, stderr := mcast(t, nil, "bench", "reducescatter", "--fabric", "udp", "--bytes", "64K", "--iters", "2",
		"--warmup", "0", "--json", "--switch="+address)
	require.NoError(t, cmd.Run(), stderr)
	all := results(t, stdout.Bytes())
	require.Len(t, all, 1)
	require.Equal(t, "switch", all[0].Algorithm)
	require.Contains(t, all[0].AlgorithmReason, address)
}

func TestBenchSaysWhenTheSwitchIsNotThere(t *testing.T) {
	closed := systest.ReservePort(t).String()
	cmd, stdout, stderr := mcast(t, nil, "bench", "reducescatter", "--fabric", "udp", "--bytes", "4K", "--iters", "2",
		"--json", "--switch="+closed)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, stderr.String(), "switch "+closed+": dial tcp ")
	require.Contains(t, stderr.String(), "connection refused")
	require.Contains(t, stderr.String(), "is `mcast switch` running there?")
	require.Empty(t, stdout.String(), "nothing has begun")
}

func TestBenchPrintsATable(t *testing.T) {
	cmd, stdout, stderr := mcast(t, nil, "bench", "allgather", "--fabric", "shm", "--bytes", "1K", "--iters", "2")
	require.NoError(t, cmd.Run(), stderr)
	require.Regexp(t, `(?m)^# allgather, 4 ranks, fabric shm`, stdout.String())
	require.Regexp(t, `(?m)^ +1024 +1024 +u8 +none .* 0$`, stdout.String())
}

// TestBenchUnderALauncher starts the ranks by hand, with a launcher's variables.
func TestBenchUnderALauncher(t *testing.T) {
	store, _ := systest.ReservePortAfter(t) // torchrun's, which is taken: the ranks meet at the next one
	port := store.Addr().(*net.TCPAddr).Port
	for name, vars := range map[string][]string{
		"torchrun": {"RANK=%d", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port)},
		"mpirun": {"OMPI_COMM_WORLD_RANK=%d", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
			"PMIX_NAMESPACE=" + t.Name() + strconv.Itoa(os.Getpid())},
	} {
		t.Run(name, func(t *testing.T) {
			var out *bytes.Buffer
			var ranks []*exec.Cmd
			for r := range 2 {
				own := append([]string{fmt.Sprintf(vars[0], r)}, vars[1:]...)
				cmd, stdout, _ := mcast(t, own, "bench", "allgather", "--bytes", "1K", "--iters", "2", "--json")
				cmd.Stderr = os.Stderr
				if r == 0 {
					out = stdout
				}
				require.NoError(t, cmd.Start())
				ranks = append(ranks, cmd)
			}
			for r, cmd := range ranks {
				require.NoError(t, cmd.Wait(), "rank %d", r)
			}
			all := results(t, out.Bytes())
			require.Len(t, all, 1)
			require.Equal(t, 2, all[0].Ranks)
			require.Zero(t, all[0].Wrong)
		})
	}
}

// children waits until a process has n children and returns their ids.
func children(t *testing.T, pid, n int) (ids []int) {
	t.Helper()
	systest.Eventually(t, func() bool {
		ids = ids[:0]
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		require.NoError(t, err)
		for _, file := range files {
			list, _ := os.ReadFile(file) // The thread may be gone.
			for _, word := range strings.Fields(string(list)) {
				id, err := strconv.Atoi(word)
				require.NoError(t, err)
				ids = append(ids, id)
			}
		}
		return len(ids) == n
	})
	return ids
}

func TestBenchNamesTheRankThatFails(t *testing.T) {
	cmd, _, stderr := mcast(t, nil, "bench", "allgather", "--ranks", "3", "--bytes", "1M", "--iters", "1000000")
	require.NoError(t, cmd.Start())
	ids := children(t, cmd.Process.Pid, 3)
	require.NoError(t, syscall.Kill(ids[1], syscall.SIGKILL))
	err := cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, stderr.String(), fmt.Sprintf("(process %d) failed: signal: killed", ids[1]))
	for _, id := range ids {
		require.ErrorIs(t, syscall.Kill(id, 0), syscall.ESRCH, "process %d is still there", id)
	}
}

func TestRanksEndWithTheProcessThatStartedThem(t *testing.T) {
	for processes, args := range map[int][]string{2: {"allgather"}, 3: {"reducescatter", "--fabric", "udp", "--switch"}} {
		t.Run(args[0], func(t *testing.T) {
			cmd, _,
				_ := mcast(t, nil, append([]string{"bench", "--ranks", "2", "--bytes", "1M", "--iters", "1000000"}, args...)...)
			// The others inherit no pipe of ours, so Wait does not wait for them.
			cmd.Stdout, cmd.Stderr = nil, nil
			require.NoError(t, cmd.Start())
			ids := children(t, cmd.Process.Pid, processes)
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
			for _, id := range ids {
				systest.Eventually(t, func() bool { return !alive(id) }, "process %d is still there", id)
			}
		})
	}
}

// alive is false for a zombie too: nobody may be there to reap it.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestBenchReportsBadInput(t *testing.T) {
	for want, args := range map[string][]string{
		"mcast: error: --loss: \"7\" is no share": {"allgather", "--loss", "7"},
		"no-such-if": {"allgather", "--bytes", "1K", "--fabric", "udp"},
	} {
		cmd, _, stderr := mcast(t, []string{"MCAST_IFACE=no-such-if"}, append([]string{"bench"}, args...)...)
		require.Error(t, cmd.Run())
		require.Contains(t, stderr.String(), want)
	}
}

func TestEnv(t *testing.T) {
	cmd, stdout, stderr := mcast(t, []string{"MCAST_TTL=3", "MCAST_FABRIK=x"}, "env")
	require.NoError(t, cmd.Run())
	require.Regexp(t, `(?m)^MCAST_TTL +3 +environment +a whole number from 0 to 255$`, stdout.String())
	require.Regexp(t, `(?m)^MCAST_FABRIC +auto +default`, stdout.String())
	require.Contains(t, stderr.String(), "MCAST_FABRIK has no effect: did you mean MCAST_FABRIC?")

	cmd, stdout, _ = mcast(t, nil, "env", "--markdown")
	require.NoError(t, cmd.Run())
	reference, err := os.ReadFile("../../docs/reference/settings.md")
	require.NoError(t, err)
	require.Equal(t, string(reference), stdout.String())

	cmd, _, stderr = mcast(t, []string{"MCAST_TTL=300"}, "env")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), `MCAST_TTL="300" is not allowed`)

	cmd, stdout, _ = mcast(t, []string{"MCAST_SECRET=store"}, "env")
	require.NoError(t, cmd.Run(), "it is for the job's ranks")
	require.Regexp(t, `(?m)^MCAST_SECRET +\(set\) +environment`, stdout.String())
	cmd, _, stderr = mcast(t, []string{"MCAST_SECRET=store"}, "bench", "allgather", "--ranks", "2")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "MCAST_SECRET=store is for process groups of torch_mcast")
}

func TestVersion(t *testing.T) {
	cmd, stdout, _ := mcast(t, nil, "version")
	require.NoError(t, cmd.Run())
	require.Regexp(t, `^mcast \d+\.\d+\.\d+ \(go`, stdout.String())
}
