package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/cli/clitest"
)

// TestMistakes: any wrong argument, of any command, ends with the same status, before anything has begun.
func TestMistakes(t *testing.T) {
	clitest.RequireMistakes(t, [][3]string{
		{"", "sim soak --seeds 3", "sim is in mcast-lab now, which no package has: `make build` in a checkout makes " +
			"bin/mcast-lab: bin/mcast-lab sim soak --seeds 3\n"},
		{"", "testbed up --hosts {}", "makes bin/mcast-lab: bin/mcast-lab testbed up --hosts '{}'\n"},
		{"", "bench allgather --algorithm ring --json", "the ring is in mcast-lab now, which no package has: `make build` " +
			"in a checkout makes bin/mcast-lab: bin/mcast-lab ring allgather --json\n"},
		{"", "bench --algorithm=ring overlap", "bin/mcast-lab ring overlap\n"},
		{"", "bench allgather --algorithm mcast",
			"leave --algorithm out: mcast bench is always ours: mcast bench allgather\n"},
		{"", "bench allgather --algorithm=mcast --iters 3", ": mcast bench allgather --iters 3\n"},
		{"", "bench allgather --algorithm", "unknown flag --algorithm"},
		{"", "bench allgather --algorithm tree", "unknown flag --algorithm"},
		{"", "", "no command"},
		{"", "bench allgather --switch 127.0.0.1:7470", "a value of --switch is written --switch=127.0.0.1:7470"},
		{"", "benhc", `did you mean "bench"?`},
		{"", "bench allgater", "must be one of"},
		{"", "bench allgather --byte 1K", "did you mean"},
		{"", "bench allgather --bytes 4X", "is not a size"},
		{"", "bench allgather --bytes -1", `"-1" is not a size`},
		{"", "bench allgather --bytes 1K:", "is not a size"},
		{"", "bench allgather --bytes 4K:1K", "is not a range"},
		{"", "bench allgather --bytes 99999999999G", "is not a size"},
		{"", "bench allgather --bytes \uff14K", "is not a size"},
		{"", "bench allgather --step 1", "want at least 2"},
		{"", "bench allgather --iters -3", "want at least 1"},
		{"", "bench allgather --loss -1", "is no share"},
		{"", "bench allgather --loss nan", "is no share"},
		{"", "bench allgather --fabric tcp", "want one of"},
		{"", "bench allgather --root 1", "want broadcast"},
		{"", "bench allgather --inflight 4", "want --window"},
		{"", "bench allgather --window 1K --inflight -1", "want at least 1"},
		{"", "bench allgather --window -4", "is not a size"},
		{"", "bench allgather --exact", "--exact is for reductions"},
		{"", "bench allgather --ranks 99999999999999999999", "99999999999999999999"},
		{"", "bench allreduce --op average", "want one of"},
		{"", "bench allreduce --bytes 3", "no multiple of 4"},
		{"", "bench allreduce --bytes 1K --switch", "want larger ones"},
		{"", "bench allreduce --switch=127.0.0.1:99999", "1 to 65535"},
		{"", "bench broadcast --root -1", "want 0 to 3"},
		{"", "bench groups --groups 4,1", "ascending"},
		{"", "bench groups --idle -5", "above 0"},
		{"MCAST_FABRIC=UDP", "bench allgather", "want one of"},
		{"MCAST_IFACE=lo,lo", "bench allgather", "MCAST_IFACE"},
		{"MCAST_GROUP=10.0.0.1", "bench allgather", "want empty"},
		{"MCAST_TOPOLOGY=//", "bench allgather", "MCAST_TOPOLOGY"},
		{"MCAST_TRACE=relative", "bench allgather", "from the root"},
		{"MCAST_SECRET_FILE=/nonexistent", "bench allgather", "no such file"},
		{"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=99999", "bench allgather", "MASTER_PORT"},
		{"", "bench allgather --ranks 0", "want 1 to 1024"},
		{"", "bench allgather --ranks two", "two"},
		{"", "bench allgather --loss 200%", "is no share"},
		{"", "bench allreduce --dtype fp16", "unknown type"},
		{"", "bench groups --idle 5x", "is no duration"},
		{"", "bench broadcast --root 9", "want 0 to 3"},
		{"MCAST_TIMEOUT=5000", "bench allgather", "MCAST_TIMEOUT"},
		{"MCAST_SECRET=short", "bench allgather", "MCAST_SECRET"},
		{"MCAST_SECRET=store", "bench allgather", "MCAST_SECRET=store"},
		{"MCAST_ENCRYPT=1", "bench allgather", "MCAST_ENCRYPT=1"},
		{"RANK=7 WORLD_SIZE=2", "bench allgather", "want a rank from 0 to 1"},
		{"", "switch --rate 10", "is no rate"},
		{"", "switch --rate unlimited", "--rate=unlimited"},
		{"", "switch --memory 10", "--memory=10"},
		{"", "switch --bind 0.0.0.0", "want host:port"},
		{"", "switch --join-timeout soon", "is no duration"},
		{"", "switch --data-ports 9-1", "no range of ports"},
		{"", "switch --config /nonexistent.json", "nonexistent.json"},
		{"", "switch --config /dev/null", "--config: want a JSON object"},
		{"", "switch --bind 127.0.0.1:99999", "up to 65535"},
		{"", "switch --http 127.0.0.1:99999", "up to 65535"},
		{"", "switch --parent 10.0.0.1", "want host:port"},
		{"", "switch --workers 1000", "want 1 to 64"},
		{"", "switch --workers -1", "want 1 to 64"},
		{"", "switch --memory -1", "is not a size"},
		{"", "switch --memory 1M --job-memory 2M", "want at most as much"},
		{"", "switch --jobs 0", "want at least 1"},
		{"", "switch --members -1", "want at least 1"},
		{"", "switch --join-timeout 0", "above 0"},
		{"", "switch --drain-timeout -1s", "want 0 or more"},
		{"", "switch --secrets /dev/null", "no secret"},
		{"MCAST_SECRET=short", "switch", "MCAST_SECRET"},
		{"", "top --interval 5ms", "want 100ms or more"},
		{"", "top --once --switch=", "empty name"},
		{"MCAST_METRICS=off", "top --once", "MCAST_METRICS=off"},
		{"", "explain --seconds 0", "want 1s or more"},
		{"", "explain --hosts a --directory /tmp", "not allowed together"},
		{"", "explain --hosts=", "empty name"},
		{"", "explain --hosts a:99999", "up to 65535"},
		{"", "advise", "expected"},
		{"", "advise --link 10 x", "is no rate"},
		{"", "advise --ranks-per-host -1 x", "want at least 1"},
		{"", "metrics --interval 5ms", "want 0 or a second"},
		{"", "metrics --listen nowhere", "want host:port"},
		{"", "metrics --textfile /nonexistent", "want a directory"},
		{"", "metrics --listen 127.0.0.1:99999", "up to 65535"},
		{"", "metrics --otlp nowhere", "want a URL"},
		{"", "trace merge", "expected"},
		{"", "nccl check --nodes 0", "want at least 1"},
		{"", "nccl check --nvswitch perhaps", "must be one of"},
		{"", "nccl topology --gpu 5", "is no GPU"},
		{"", "doctor --listen soon", "is no duration"},
		{"", "doctor --hosts=", "empty name"},
		{"", "doctor --hosts a,b,a", "a twice"},
		{"", "doctor --names a,b --hosts-count 3 --meet 127.0.0.1:4444", "do not agree"},
		{"", "doctor --hosts-count -1 --meet 127.0.0.1:4444", "want at least 1"},
		{"", "doctor --meet 127.0.0.1:99999 --hosts-count 2", "up to 65535"},
		{"", "doctor --listen -1s", "want 0 or more"},
		{"", "doctor --meet nowhere --hosts-count 2", "want HOST:PORT"},
		{"", "doctor --hosts-count 3", "want --meet"},
		{"", "secret --metrics", "neither MCAST_SECRET nor"},
		{"", "secret --sideways", "unknown flag"},
		{"MCAST_LOSS=2", "env", "MCAST_LOSS"},
		{"", "version 2", "unexpected argument"},
	})
}

// TestNothingBegins: what a path, a host or a terminal refuses is said before anything takes long, with status 1, or 3
// of a command that looks.
func TestNothingBegins(t *testing.T) {
	for _, c := range []struct {
		args, says string
		status     int
	}{
		{"bench reducescatter --switch=127.0.0.1:1", "connection refused", 1},
		{"top --once --interval 100ms --directory /nonexistent", "no rank was seen", 3},
		{"top --once --interval 100ms --switch 127.0.0.1:1", "switch 127.0.0.1:1 does not answer", 3},
		{"explain --seconds 1 --hosts 127.0.0.1:1", "connection refused", 3},
	} {
		cmd, stdout, stderr := mcast(t, nil, strings.Fields(c.args)...)
		require.Error(t, cmd.Run(), c.args)
		assert.Equal(t, c.status, cmd.ProcessState.ExitCode(), "mcast %s: %s", c.args, stderr)
		assert.Contains(t, stderr.String(), c.says, c.args)
		assert.NotContains(t, stdout.String(), "hash", c.args)
	}
}

// TestFullOutput: what cannot be printed is an error.
func TestFullOutput(t *testing.T) {
	for _, args := range []string{"version", "env", "secret", "completion bash"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		cmd, _, stderr := mcast(t, nil, strings.Fields(args)...)
		cmd.Stdout = full
		require.Error(t, cmd.Run(), args)
		require.NoError(t, full.Close())
		assert.Contains(t, stderr.String(), "no space left on device", args)
	}
}

// TestExitStatusesAreDocumented: --help and docs/reference/commands.md have the same ones.
func TestExitStatusesAreDocumented(t *testing.T) {
	clitest.RequireStatuses(t, "mcast", "../../docs/reference/commands.md")
}

// TestHelpIsOneScreen: there are many commands, and who asks wants to see them all.
func TestHelpIsOneScreen(t *testing.T) { clitest.RequireShortHelp(t) }
