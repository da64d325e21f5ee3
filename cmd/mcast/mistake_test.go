package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// TestMistakes: whatever is given wrongly, to whatever command, ends with one status, and nothing has begun.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ vars, args, says string }{
		{"", "", "no command"},
		{"", "benhc", `did you mean "bench"?`},
		{"", "bench allgater", "must be one of"},
		{"", "bench allgather --byte 1K", "did you mean"},
		{"", "bench allgather --bytes 4X", "is not a size"},
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
		{"MCAST_SECRET=short", "switch", "MCAST_SECRET"},
		{"", "sim allgather --nodes 1", "want at least 2"},
		{"", "sim allgather --rate unlimited", "--rate=unlimited"},
		{"", "sim allgather --loss 1", "below 1"},
		{"", "sim broadcast --algorithm ring", "want one of"},
		{"", "sim broadcast --nodes 100000 --radix 4", "do not fit"},
		{"", "sim overlap --iters 2", "mean nothing to an overlap"},
		{"", "sim nodes --way mesh", "--way=mesh"},
		{"", "sim figures --out x --only none", "--only"},
		{"", "sim soak --seconds=-1", "must not be negative"},
		{"", "testbed up --hosts 0", "want 1 to 1000"},
		{"", "testbed with --hosts 2 --loss 2 -- true", "is no share"},
		{"", "testbed with --hosts 2 --mtu 9 -- true", "want 1280 to 65535"},
		{"", "testbed fault loss all one", "is no share"},
		{"", "testbed fault rate all 10", "is no rate"},
		{"", "testbed fault freeze all 0", "want a time such as 2s"},
		{"", "testbed fault signal 0 HUPP", "is no signal"},
		{"", "testbed fault flap 0 --times 0", "at least once"},
		{"", "testbed faults --repeat 0", "want at least 1"},
		{"", "testbed faults --only [", "want a row"},
		{"", "testbed experiment none", "there is no experiment"},
		{"", "testbed experiment all --rounds 0", "want at least 1"},
		{"", "testbed experiment all --within -1", "--within"},
		{"", "top --interval 5ms", "want 100ms or more"},
		{"MCAST_METRICS=off", "top --once", "MCAST_METRICS=off"},
		{"", "explain --seconds 0", "want 1s or more"},
		{"", "explain --hosts a --directory /tmp", "not allowed together"},
		{"", "advise", "expected"},
		{"", "advise --link 10 x", "is no rate"},
		{"", "metrics --interval 5ms", "want 0 or a second"},
		{"", "metrics --otlp nowhere", "want a URL"},
		{"", "trace merge", "expected"},
		{"", "nccl check --nodes 0", "want at least 1"},
		{"", "nccl check --nvswitch perhaps", "must be one of"},
		{"", "nccl topology --gpu 5", "is no GPU"},
		{"", "doctor --listen soon", "is no duration"},
		{"", "doctor --meet nowhere --hosts-count 2", "want HOST:PORT"},
		{"", "doctor --hosts-count 3", "want --meet"},
		{"", "secret --metrics", "neither MCAST_SECRET nor"},
		{"", "secret --sideways", "unknown flag"},
		{"MCAST_LOSS=2", "env", "MCAST_LOSS"},
		{"", "version 2", "unexpected argument"},
	} {
		cmd, _, stderr := mcast(t, strings.Fields(c.vars), strings.Fields(c.args)...)
		require.Error(t, cmd.Run(), c.args)
		assert.Equal(t, config.ExitMistake, cmd.ProcessState.ExitCode(), "%s mcast %s: %s", c.vars, c.args, stderr)
		assert.Contains(t, stderr.String(), "mcast: error: ", c.args)
		assert.Contains(t, stderr.String(), c.says, c.args)
	}
}

// TestExitStatusesAreDocumented: --help and docs/COMMANDS.md have the same ones.
func TestExitStatusesAreDocumented(t *testing.T) {
	cmd, stdout, _ := mcast(t, nil, "--help")
	require.NoError(t, cmd.Run())
	_, list, found := strings.Cut(stdout.String(), "\nExit status:\n")
	require.True(t, found)
	page, err := os.ReadFile("../../docs/COMMANDS.md")
	require.NoError(t, err)
	var said, documented []string
	for _, m := range regexp.MustCompile(`(?m)^  (\d+) `).FindAllStringSubmatch(list, -1) {
		said = append(said, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	require.Contains(t, said, strconv.Itoa(config.ExitMistake))
	require.Equal(t, documented, said)
}
