package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bench"
	"github.com/torch-mcast/torch-mcast/internal/cli/clitest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// forAll is a directory that any user may read; TestMain removes it.
var forAll string

func TestMain(m *testing.M) {
	clitest.Main(main, func() int {
		defer systest.RemovePrograms()
		var err error
		// Ordinary users reach /tmp, wherever TMPDIR is.
		if forAll, err = os.MkdirTemp("/tmp", "mcast-test-"); err == nil {
			err = os.Chmod(forAll, 0o755)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(forAll) }()
		return m.Run()
	})
}

// lab prepares a run of this program.
var lab = clitest.Command

// results reads the rows of mcast-lab ring, and of mcast bench.
var results = clitest.Rows[bench.Result]

// TestCommon: what mcast has as well.
func TestCommon(t *testing.T) {
	for args, want := range map[string]string{
		"version":          `^mcast-lab \d+\.\d+\.\d+ \(go`,
		"--version":        `^mcast-lab \d+\.\d+\.\d+ \(go`,
		"version --json":   `^\{"version":`,
		"completion bash":  `complete -o default -F _mcast-lab mcast-lab\n`,
		"complete -- t":    `^testbed\n$`,
		"--man":            `^\.TH MCAST-LAB 1 `,
		"--help":           `(?s)^Usage: mcast-lab .*\n  testbed  .*\n  124 `,
		"sim nodes --help": `(?s)^Usage: mcast-lab sim nodes`,
		"completion fish":  `complete -c mcast-lab `,
		"completion zsh":   `#compdef mcast-lab\n`,
		"testbed --help":   `Run a command on every host of a testbed`,
		"ring --help":      `--in-place`,
	} {
		cmd, stdout, stderr := lab(t, nil, strings.Fields(args)...)
		require.NoError(t, cmd.Run(), stderr)
		assert.Regexp(t, want, stdout.String(), args)
	}
}

// TestHelpIsOneScreen: like the test of mcast.
func TestHelpIsOneScreen(t *testing.T) { clitest.RequireShortHelp(t) }

// TestExitStatusesAreDocumented: --help and docs/reference/commands.md have the same ones.
func TestExitStatusesAreDocumented(t *testing.T) {
	clitest.RequireStatuses(t, "mcast-lab", "../../docs/reference/commands.md")
}

// TestCommandsOfTheOtherProgram: every command of mcast is known here, so that a user who tries it is told of mcast.
func TestCommandsOfTheOtherProgram(t *testing.T) {
	folder, err := systest.Programs()
	require.NoError(t, err)
	help, err := exec.Command(filepath.Join(folder, "mcast"), "--help").Output()
	require.NoError(t, err)
	own := []string{"version", "completion"} // of each program
	require.ElementsMatch(t, clitest.Commands(t, string(help)), append(own, others...))
}

// TestHelpOfARing: it says of the flags what a ring takes.
func TestHelpOfARing(t *testing.T) {
	cmd, stdout, stderr := lab(t, nil, "ring", "--help")
	require.NoError(t, cmd.Run(), stderr)
	said := strings.Join(strings.Fields(stdout.String()), " ")
	for _, flag := range []string{
		"--op=op Reduction: sum, prod, max, min or avg. Default: sum.",
		"any but f16, bf16, e4m3 and e5m2, which have sums of another type. Default: f32.",
		"Reduce numbers with exact sums, as mcast bench --exact does.",
	} {
		require.Contains(t, said, flag)
	}
	for _, none := range []string{"premulsum", "llreduce", "MCAST_SWITCH", "node", "$"} {
		require.NotContains(t, said, none)
	}
}

// TestMistakes: any wrong argument, of any command, ends with the same status, before anything has begun.
func TestMistakes(t *testing.T) {
	clitest.RequireMistakes(t, [][3]string{
		{"", "", "no command: want one of sim, testbed, ring, version, completion"},
		{"", "bench allgather", "bench is a command of mcast: run mcast bench\n"},
		{"", "ring broadcast --exact",
			"--exact is for reductions, and not for products: want reducescatter or overlap, and another --op"},
		{"MCAST_TIMEOUT=x", "ring allgather --ranks 1", "MCAST_TIMEOUT"},
		{"", "sim allgather --nodes 1", "want at least 2"},
		{"", "sim allgather --rate unlimited", "--rate=unlimited"},
		{"", "sim allgather --loss 1", "below 1"},
		{"", "sim allgather --nodes -1", "want at least 2"},
		{"", "sim allgather --chunk 1G", "want at most 512KiB"},
		{"", "sim allgather --queue 1", "a packet"},
		{"", "sim allgather --latency 1h", "want at most 1s"},
		{"", "sim allgather --jitter -1", "want at least 0"},
		{"", "sim allgather --leaves 4", "go together"},
		{"", "sim allgather --segment 4K", "--segment"},
		{"", "sim allgather --trace x --bytes 1K,2K", "--trace"},
		{"", "sim broadcast --algorithm ring", "want one of"},
		{"", "sim broadcast --nodes 100000 --radix 4", "do not fit"},
		{"", "sim overlap --iters 2", "mean nothing to an overlap"},
		{"", "sim nodes --way mesh", "--way=mesh"},
		{"", "sim figures --out x --only none", "--only"},
		{"", "sim figures --out x --only=", "empty name"},
		{"", "sim nodes --way=", "empty name"},
		{"", "sim soak --operations -1", "must not be negative"},
		{"", "sim soak --replay {", "not a scenario"},
		{"", "sim soak --replay=", "not a scenario"},
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
		{"", "testbed fault delay 0 -1s", "below 0"},
	})
}

// TestNothingBegins: what a path refuses is said before anything takes long.
func TestNothingBegins(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	without := "hosts of a testbed run mcast, and there is neither " + filepath.Join(filepath.Dir(self),
		"mcast") + " nor one in PATH: `make build` makes it\n"
	for args, says := range map[string]string{
		"sim allgather --trace /nonexistent/x": "--trace: open /nonexistent/x: no such file or directory",
		"sim figures --out /dev/null/x":        "--out: ",
		"testbed experiment unicast":           without,
		"testbed faults":                       without,
	} {
		cmd, stdout, stderr := lab(t, []string{"PATH="}, strings.Fields(args)...) // where there is no mcast
		require.Error(t, cmd.Run(), args)
		assert.Equal(t, 1, cmd.ProcessState.ExitCode(), "%s: %s", args, stderr)
		assert.Contains(t, stderr.String(), says, args)
		assert.NotContains(t, stdout.String(), "hash", args)
	}
}
