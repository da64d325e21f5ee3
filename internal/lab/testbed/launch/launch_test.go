package launch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// variables reads what `env` has written to a log.
func variables(t *testing.T, log string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	all := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		all[name] = value
	}
	return all
}

func TestRanksAreToldWhatTorchrunTells(t *testing.T) {
	tb := up(t, 4, 1, 0)
	logs := t.TempDir()
	run, err := launch.Start(t.Context(), tb, launch.Job{
		Command: []string{"sh", "-c", "env; echo HOSTNAME=`hostname`; echo ADDRESS=`getent ahostsv4 $(hostname)`; echo " +
			"NETNS=`readlink /proc/self/ns/net`; echo HERE=`pwd`; echo PEER=`getent hosts ::ffff:10.77.0.2`"},
		Hosts: []int{2, 0, 3}, PerHost: 2, Topology: true, Env: []string{"MINE=a=b", "OMP_NUM_THREADS=3"}, Dir: "/",
		Logs: logs,
	})
	require.NoError(t, err)
	require.NoError(t, run.Wait())
	var job []string
	for rank := range 6 {
		got := variables(t, run.Log(rank))
		host := tb.Hosts()[[]int{2, 0, 3}[rank/2]]
		want := map[string]string{
			"RANK": fmt.Sprint(rank), "LOCAL_RANK": fmt.Sprint(rank % 2), "GROUP_RANK": fmt.Sprint(rank / 2),
			"NODE_RANK": fmt.Sprint(rank / 2),
			"ROLE_RANK": fmt.Sprint(rank), "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "3",
			"ROLE_WORLD_SIZE": "6", "ROLE_NAME": "default",
			"MASTER_ADDR": tb.Hosts()[2].Addr.String(), "TORCHELASTIC_USE_AGENT_STORE": "False",
			"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
			"GLOO_SOCKET_IFNAME": "eth0", "MINE": "a=b", "OMP_NUM_THREADS": "3", "HOSTNAME": host.Namespace, "HERE": "/",
			"MCAST_TOPOLOGY": "leaf0", "PEER": "::ffff:10.77.0.2 " + tb.Hosts()[1].Namespace + ".ip6",
		}
		for name, value := range want {
			require.Equal(t, value, got[name], "%s of rank %d", name, rank)
		}
		require.True(t, strings.HasPrefix(got["ADDRESS"], host.Addr.String()+" "), got["ADDRESS"])
		file, err := os.Stat(filepath.Join("/run/netns", host.Namespace))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("net:[%d]", file.Sys().(*syscall.Stat_t).Ino), got["NETNS"])
		require.Contains(t, tb.Groups(), mustAddr(t, got["MCAST_GROUP"]))
		job = append(job, got["MASTER_PORT"]+got["TORCHELASTIC_RUN_ID"]+got["MCAST_GROUP"])
	}
	require.Len(t, slices.Compact(job), 1, "ranks of one job are told the same")
}

func TestADeadRankEndsTheRun(t *testing.T) {
	tb := up(t, 4, 1, 0)
	mark := "MARK=" + t.Name() + tb.Name()
	seen := filepath.Join(t.TempDir(), "seen")
	run, err := launch.Start(t.Context(), tb, launch.Job{
		// The others have a child, and one that has left their process group.
		Command: []string{"sh", "-c", `echo rank $RANK
			if [ $RANK = 2 ]; then while [ ! -e ` + seen + ` ]; do sleep 0.01; done; seq 9999; echo out of luck >&2; exit 3; fi
			setsid sleep 1000 & sleep 1000 & wait`},
		Env: []string{mark},
	})
	require.NoError(t, err)
	require.NotEmpty(t, marked(t, mark))
	require.NoError(t, os.WriteFile(seen, nil, 0o600))
	var dead *launch.DeadRankError
	require.ErrorAs(t, run.Wait(), &dead)
	require.Equal(t, 2, dead.Rank)
	require.Equal(t, tb.Hosts()[2].Namespace, dead.Host)
	require.Equal(t, 3, dead.State.ExitCode())
	require.True(t, strings.HasSuffix(dead.Tail, "\n    9999\n    out of luck"), dead.Tail)
	require.Less(t, len(dead.Tail), 16<<10)
	require.ErrorContains(t, dead, "rank 2 on "+dead.Host)
	require.ErrorContains(t, dead, "exit status 3")
	require.Empty(t, marked(t, mark))
}

// Ranks that keep going outlive one that fails, and its error is the run's all the same; and one
// rank comes late.
func TestOthersKeepGoing(t *testing.T) {
	tb := up(t, 3, 1, 0)
	logs := t.TempDir()
	begin := time.Now()
	run, err := launch.Start(t.Context(), tb, launch.Job{
		Command: []string{"sh", "-c", "date +%s%N; [ $RANK != 1 ] || exit 3; sleep 0.5; echo end"},
		Late:    map[int]time.Duration{2: 500 * time.Millisecond}, KeepGoing: true, Logs: logs,
	})
	require.NoError(t, err)
	require.Positive(t, run.Process(0))
	var dead *launch.DeadRankError
	require.ErrorAs(t, run.Wait(), &dead)
	require.Equal(t, 1, dead.Rank)
	require.GreaterOrEqual(t, time.Since(begin), time.Second) //nolint:forbidigo // load only adds to it
	started := make([]int64, 3)
	for rank := range 3 {
		text, err := os.ReadFile(run.Log(rank))
		require.NoError(t, err)
		require.Equal(t, rank != 1, strings.HasSuffix(string(text), "\nend\n"), "rank %d: %s", rank, text)
		_, err = fmt.Sscan(string(text), &started[rank])
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, started[2]-begin.UnixNano(), (500 * time.Millisecond).Nanoseconds())
}

func TestAnEndedContextEndsAllRanks(t *testing.T) {
	tb := up(t, 3, 1, 0)
	mark := "MARK=" + t.Name() + tb.Name()
	ctx, cancel := context.WithCancelCause(t.Context())
	out, in := io.Pipe()
	run, err := launch.Start(ctx, tb, launch.Job{
		// Rank 1 hears of nothing but the last signal.
		Command: []string{"sh", "-c", "[ $RANK != 1 ] || trap '' TERM; echo ready; while :; do sleep 1; done"},
		Env:     []string{mark}, Output: func(int) (io.Writer, io.Writer) { return in, nil },
	})
	require.NoError(t, err)
	_, err = io.ReadFull(out, make([]byte, 3*len("ready\n")))
	require.NoError(t, err)
	require.NoError(t, run.Signal(2, syscall.SIGSTOP)) // and is to end all the same
	reason := errors.New("enough")
	cancel(reason)
	require.ErrorIs(t, run.Wait(), reason)
	require.Empty(t, marked(t, mark))
	_, err = launch.Start(ctx, tb, launch.Job{Command: []string{"true"}})
	require.ErrorIs(t, err, reason)
}

func TestARankThatCannotStart(t *testing.T) {
	tb := up(t, 2, 1, 0)
	for want, job := range map[string]launch.Job{
		"no-such-program":       {Command: []string{"no-such-program"}},
		"without a command":     {},
		"host 2 is not in":      {Command: []string{"true"}, Hosts: []int{0, 2}},
		"host 1 is named twice": {Command: []string{"true"}, Hosts: []int{1, 1}},
		"on no host":            {Command: []string{"true"}, Hosts: []int{}},
		"-1 ranks a host":       {Command: []string{"true"}, PerHost: -1},
		`"X" is no variable`:    {Command: []string{"true"}, Env: []string{"X"}},
		"TORCHELASTIC_RUN_ID=7": {Command: []string{"true"}, Env: []string{"TORCHELASTIC_RUN_ID=7"}},
		"10.0.0.1 is no group":  {Command: []string{"true"}, Group: mustAddr(t, "10.0.0.1")},
		"rank 2 late by 1s":     {Command: []string{"true"}, Late: map[int]time.Duration{2: time.Second}},
		"rank 2 on core 0":      {Command: []string{"true"}, Cores: map[int]int{2: 0}},
		"MCAST_SUBGROUPS":       {Command: []string{"true"}, Env: []string{"MCAST_SUBGROUPS=65"}},
	} {
		_, err := launch.Start(t.Context(), tb, job)
		require.ErrorContains(t, err, want)
	}
}

// TestCores: a rank runs on the core that it is given, another wherever this process may.
func TestCores(t *testing.T) {
	tb := up(t, 2, 1, 0)
	logs := t.TempDir()
	job := launch.Job{
		Command: []string{"grep", "Cpus_allowed_list", "/proc/self/status"}, Cores: map[int]int{1: 0}, Logs: logs,
	}
	run, err := launch.Start(t.Context(), tb, job)
	require.NoError(t, err)
	require.NoError(t, run.Wait())
	here, err := exec.Command(job.Command[0], job.Command[1:]...).Output()
	require.NoError(t, err)
	for rank, want := range []string{string(here), "Cpus_allowed_list:\t0\n"} {
		said, err := os.ReadFile(run.Log(rank))
		require.NoError(t, err)
		require.Equal(t, want, string(said), rank)
	}
}

// TestLeases starts runs that wait, each while the former ones go on.
func TestLeases(t *testing.T) {
	tb := up(t, 1, 1, 0)
	ctx, cancel := context.WithCancel(t.Context())
	job := launch.Job{Command: []string{"sh", "-c", "env; echo READY=; exec sleep 1000"}}
	start := func(job launch.Job) (*launch.Run, string, string) {
		run, err := launch.Start(ctx, tb, job)
		require.NoError(t, err)
		var all map[string]string
		systest.Eventually(t, func() bool {
			all = variables(t, run.Log(0))
			return slices.Contains(slices.Collect(maps.Keys(all)), "READY")
		})
		return run, all["MCAST_GROUP"], all["MASTER_PORT"]
	}
	first, group0, port0 := start(job)
	two := job
	two.Env = []string{"MCAST_SUBGROUPS=2"}
	second, group1, port1 := start(two)
	shared := job
	shared.Group = tb.Groups()[0]
	third, group2, port2 := start(shared)
	fourth, group3, port3 := start(job)
	require.Equal(t, []string{"239.192.77.0", "239.192.77.1", "239.192.77.0", "239.192.77.3"},
		[]string{group0, group1, group2, group3})
	require.Equal(t, []string{"29500", "29502", "29504", "29506"}, []string{port0, port1, port2, port3})

	require.NoError(t, first.Signal(0, syscall.SIGKILL))
	require.Error(t, first.Wait())
	fifth, group4, port4 := start(job)
	require.Equal(t, "239.192.77.4", group4, "the third run has the first one's group, too")
	require.Equal(t, "29500", port4)
	cancel()
	for _, run := range []*launch.Run{second, third, fourth, fifth} {
		require.ErrorIs(t, run.Wait(), context.Canceled)
	}
}

// TestWhatAKilledRunLeftBehind kills the process of a run, so that it cannot clean up: the ranks
// end with it, and the next run ends their children.
func TestWhatAKilledRunLeftBehind(t *testing.T) {
	tb := up(t, 2, 1, 0)
	mark := "MARK=" + t.Name() + tb.Name()
	runner := exec.Command(os.Args[0])
	runner.Env = append(os.Environ(), beRunner+"="+tb.Name(), mark)
	out, err := runner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, runner.Start())
	_, err = io.ReadFull(out, make([]byte, 2*len("ready\n")))
	require.NoError(t, err)
	require.NoError(t, runner.Process.Kill())
	require.Error(t, runner.Wait())
	systest.Eventually(t, func() bool { return len(marked(t, mark)) == 2 }, "two children are left")
	run, err := launch.Start(t.Context(), tb, launch.Job{Command: []string{"true"}})
	require.NoError(t, err)
	require.Empty(t, marked(t, mark))
	require.NoError(t, run.Wait())
}
