package launch_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func mustAddr(t *testing.T, text string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(text)
	require.NoError(t, err)
	return a
}

// limits are those of ranks that a busy machine does not meet.
var limits = []string{"MCAST_JOIN_TIMEOUT=" + systest.Limit.String(), "MCAST_TIMEOUT=" + systest.Limit.String(),
	"MCAST_SWITCH_TIMEOUT=" + systest.Limit.String()}

// bench is a job that prints its results to out. `mcast bench` itself checks every byte.
func bench(out io.Writer, args ...string) launch.Job {
	return launch.Job{
		Command: append([]string{built.Mcast, "bench", "--json", "--iters=3", "--warmup=1"}, args...), Env: limits,
		Output: func(rank int) (io.Writer, io.Writer) {
			if rank == 0 {
				return out, nil
			}
			return nil, nil
		},
	}
}

func requireRight(t *testing.T, all []result, ranks int, algorithm string) {
	t.Helper()
	require.NotEmpty(t, all)
	for _, r := range all {
		require.Zero(t, r.Wrong)
		require.Equal(t, ranks, r.Ranks)
		require.Equal(t, "udp", r.Fabric)
		require.Equal(t, algorithm, r.Algorithm)
	}
}

func TestBench(t *testing.T) {
	for _, shape := range []struct {
		leaves, spines int
		ipv6           bool
		dtype          string
	}{{1, 0, false, "f32"}, {2, 2, false, "i32"}, {2, 2, true, "i32"}} {
		// a tree adds partial sums, which the check of floats does not expect
		tb := upAs(t, testbed.Spec{Hosts: 4, Leaves: shape.leaves, Spines: shape.spines, IPv6: shape.ipv6})
		var out bytes.Buffer
		run, err := launch.Start(t.Context(), tb, bench(&out, "allgather", "--bytes=1000,300K,1M"))
		require.NoError(t, err)
		require.NoError(t, run.Wait())
		all := results(t, &out)
		require.Len(t, all, 3)
		requireRight(t, all, 4, "")

		nodes, err := launch.StartNodes(t.Context(), tb, launch.NodeOptions{Mcast: built.Mcast})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, nodes.Close()) })
		job := bench(&out, "reducescatter", "--bytes=1000,300K,1M", "--dtype="+shape.dtype)
		job.Nodes, job.PerHost = nodes, 2
		run, err = launch.Start(t.Context(), tb, job)
		require.NoError(t, err)
		require.NoError(t, run.Wait())
		all = results(t, &out)
		require.Len(t, all, 3)
		requireRight(t, all, 8, "switch")
	}
}

// TestTwoJobsAtOnce has them in different groups, and in one: each gets its own bytes alone.
func TestTwoJobsAtOnce(t *testing.T) {
	tb := up(t, 4, 1, 0)
	for _, group := range []netip.Addr{{}, tb.Groups()[7]} {
		var outs [2]bytes.Buffer
		var runs [2]*launch.Run
		for i, what := range []string{"allgather", "allreduce"} {
			job := bench(&outs[i], what, "--bytes=256K,256K,256K,256K")
			job.Group = group
			var err error
			runs[i], err = launch.Start(t.Context(), tb, job)
			require.NoError(t, err)
		}
		for i, algorithm := range []string{"", "direct"} {
			require.NoError(t, runs[i].Wait())
			requireRight(t, results(t, &outs[i]), 4, algorithm)
		}
	}
}

// endless starts a bench that ends when ctx does; next returns its next result.
func endless(
	ctx context.Context, t *testing.T, tb *testbed.Testbed, nodes *launch.Nodes, what string,
) (run *launch.Run, next func() result) {
	t.Helper()
	const sizes = 20000
	out, in := io.Pipe()
	args := []string{what, "--bytes=" + strings.Repeat("64K,", sizes-1) + "64K"}
	if what == "reducescatter" {
		args = append(args, "--dtype=i32") // see TestBench
	}
	job := bench(in, args...)
	job.Nodes, job.Env = nodes, append(slices.Clone(limits), "MCAST_SWITCH_TIMEOUT=2s") // the last one counts
	run, err := launch.Start(ctx, tb, job)
	require.NoError(t, err)
	said := make(chan []byte, sizes)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- bytes.Clone(lines.Bytes())
		}
	}()
	return run, func() (r result) {
		line, ok := <-said
		require.True(t, ok, "the run has ended")
		require.NoError(t, json.Unmarshal(line, &r), string(line))
		require.Zero(t, r.Wrong)
		return r
	}
}

func TestAKilledRankIsNamed(t *testing.T) {
	tb := up(t, 4, 1, 0)
	run, next := endless(t.Context(), t, tb, nil, "allgather")
	next()
	require.NoError(t, run.Signal(1, syscall.SIGKILL))
	var dead *launch.DeadRankError
	require.ErrorAs(t, run.Wait(), &dead)
	require.Equal(t, 1, dead.Rank, dead)
	status, ok := dead.State.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, status.Signal())
	require.ErrorIs(t, run.Signal(1, syscall.SIGKILL), os.ErrProcessDone)
}

// TestANodeStopsAndComesBack kills aggregation nodes while operations run: the only one, or of a
// tree a leaf's and the root. No operation fails; they go directly, and through the nodes again
// once all are back.
func TestANodeStopsAndComesBack(t *testing.T) {
	for _, shape := range []struct {
		leaves, spines int
		stopped        []int
	}{{1, 0, []int{0, 0}}, {2, 1, []int{1, 2}}} {
		tb := up(t, 4, shape.leaves, shape.spines)
		nodes, err := launch.StartNodes(t.Context(), tb, launch.NodeOptions{Mcast: built.Mcast})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, nodes.Close()) })
		ctx, cancel := context.WithCancel(t.Context())
		run, next := endless(ctx, t, tb, nodes, "reducescatter")
		until := func(algorithm string) {
			systest.Eventually(t, func() bool { return next().Algorithm == algorithm }, "no operation went by way of %q",
				algorithm)
		}
		until("switch")
		for _, node := range shape.stopped {
			require.NoError(t, nodes.Stop(node))
			require.Error(t, nodes.Stop(node))
			until("direct")
			require.NoError(t, nodes.Start(t.Context(), node))
			require.Error(t, nodes.Start(t.Context(), node))
			until("switch")
		}
		cancel()
		require.ErrorIs(t, run.Wait(), context.Canceled)
	}
}

func TestANodeThatDiesByItselfIsReported(t *testing.T) {
	tb := up(t, 1, 1, 0)
	_, err := launch.StartNodes(t.Context(), tb,
		launch.NodeOptions{Mcast: built.Mcast, Args: []string{"--workers=nonsense"}})
	require.ErrorContains(t, err, "switch 0 could not be started")
	require.ErrorContains(t, err, "nonsense")
}
