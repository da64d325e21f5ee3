package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestHostList(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "3": {0, 1, 2}, "3,": nil, "3-3": {3}, "5,0,2-4": {5, 0, 2, 3, 4},
		"0": nil, "4-2": nil, "a": nil, "1001": nil, "-1": nil, "1,,2": nil,
	} {
		got, err := hostList(text)
		require.Equal(t, want, got, text)
		if want == nil && text != "" {
			require.ErrorContains(t, err, "--hosts="+text+" is not allowed")
		} else {
			require.NoError(t, err)
		}
	}
}

func TestPrefixed(t *testing.T) {
	var out bytes.Buffer
	var mu sync.Mutex
	a := &prefixed{to: &out, mu: &mu, prefix: []byte("[1] ")}
	b := &prefixed{to: &out, mu: &mu, prefix: []byte("[2] ")}
	for _, step := range []struct {
		to   *prefixed
		text string
	}{{a, "on"}, {b, "two\n"}, {a, "e\n\nthree\nfo"}, {b, ""}, {a, "ur\n"}} {
		n, err := step.to.Write([]byte(step.text))
		require.NoError(t, err)
		require.Equal(t, len(step.text), n)
	}
	require.Equal(t, "[2] two\n[1] one\n[1] \n[1] three\n[1] four\n", out.String())
}

// upTestbed builds a testbed, and removes it when the test ends.
func upTestbed(t *testing.T, name string, hosts int) *testbed.Testbed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a testbed needs root")
	}
	tb, err := testbed.Up(t.Context(), testbed.Spec{Name: name, Hosts: hosts}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tb.Down()) })
	return tb
}

func TestTestbedRun(t *testing.T) {
	name := fmt.Sprintf("mcast%d", os.Getpid())
	upTestbed(t, name, 3)
	run := func(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
		return lab(t, nil, append([]string{"testbed", "run", "--name", name}, args...)...)
	}

	logs := filepath.Join(t.TempDir(), "logs")
	cmd, stdout, stderr := run("--hosts", "2,0", "--per-host", "2", "--env", "A=b, c", "--group", "5", "--tail", "--logs",
		logs, "--",
		"sh", "-c", "echo $RANK $A $MCAST_GROUP `hostname`; echo --oh >&2")
	require.NoError(t, cmd.Run(), stderr)
	for rank, host := range []string{"h2", "h2", "h0", "h0"} {
		line := fmt.Sprintf("%d b, c 239.192.77.5 mcast-%s-%s\n", rank, name, host)
		require.Contains(t, stdout.String(), fmt.Sprintf("[%d] %s", rank, line))
		require.Contains(t, stderr.String(), fmt.Sprintf("[%d] --oh\n", rank))
		log, err := os.ReadFile(filepath.Join(logs, fmt.Sprintf("rank%d.log", rank)))
		require.NoError(t, err)
		require.Contains(t, []string{line + "--oh\n", "--oh\n" + line}, string(log)) // two outputs have no order
	}

	cmd, stdout, stderr = run("--per-host", "1,3,1", "--tail", "--", "sh", "-c",
		"echo $LOCAL_RANK of $LOCAL_WORLD_SIZE `hostname`")
	require.NoError(t, cmd.Run(), stderr)
	for rank, line := range []string{"0 of 1 %s-h0", "0 of 3 %s-h1", "1 of 3 %s-h1", "2 of 3 %s-h1", "0 of 1 %s-h2"} {
		require.Contains(t, stdout.String(), fmt.Sprintf("[%d] "+line+"\n", rank, "mcast-"+name))
	}

	folder, err := systest.Programs()
	require.NoError(t, err)
	cmd, stdout, stderr = run("--switch", "--", "mcast", "bench", "overlap", "--bytes", "64K", "--iters", "2", "--json")
	cmd.Env = append(cmd.Env, "PATH="+folder+":"+os.Getenv("PATH"))
	require.NoError(t, cmd.Run(), stderr)
	all := results(t, stdout.Bytes())
	require.Len(t, all, 3)
	for _, r := range all {
		require.Zero(t, r.Wrong)
		require.Equal(t, 3, r.Ranks)
		require.Equal(t, "udp", r.Fabric)
	}
	require.Equal(t, "switch", all[2].Algorithm)

	cmd, _, stderr = run("--", "sh", "-c", "[ $RANK != 1 ] || { echo no luck; exit 3; }; exec sleep 1000")
	var failed *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &failed)
	require.Equal(t, 1, failed.ExitCode())
	require.Contains(t, stderr.String(), "rank 1 on mcast-"+name+"-h1 (process ")
	require.Contains(t, stderr.String(), "exit status 3")
	require.Contains(t, stderr.String(), "no luck")

	cmd, _, stderr = run("--", "sh", "-c", "[ $RANK != 0 ] || { echo no luck >&2; exit 3; }; exec sleep 1000")
	require.ErrorAs(t, cmd.Run(), &failed)
	require.Equal(t, 1, strings.Count(stderr.String(), "no luck"), "rank 0's output was shown")
	require.Contains(t, stderr.String(), "its output is above")

	cmd, _, stderr = run("--", "sh", "-c", "echo ready >&2; exec sleep 1000")
	heard := &firstWrite{to: stderr, done: make(chan struct{})}
	cmd.Stderr = heard
	require.NoError(t, cmd.Start())
	<-heard.done
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.True(t, errors.As(cmd.Wait(), &failed), "a run that was interrupted has failed")
	require.Contains(t, stderr.String(), "interrupt signal received")

	for want, args := range map[string][]string{
		"--hosts=x is not allowed":         {"--hosts", "x", "true"},
		"--per-host=0 is not allowed":      {"--per-host", "0", "true"},
		"2 numbers of ranks for 3 hosts":   {"--per-host", "1,2", "true"},
		"--group=64 is not allowed":        {"--group", "64", "true"},
		"host 3 is not in testbed " + name: {"--hosts", "3-4", "true"},
	} {
		cmd, _, stderr := run(args...)
		require.Error(t, cmd.Run())
		require.Contains(t, stderr.String(), want)
	}
}

// firstWrite tells when something was written.
type firstWrite struct {
	to   *bytes.Buffer
	once sync.Once
	done chan struct{}
}

func (w *firstWrite) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.done) })
	return w.to.Write(b)
}

func TestTestbedRsh(t *testing.T) {
	name := fmt.Sprintf("mcast%d-rsh", os.Getpid())
	tb := upTestbed(t, name, 2)
	host, node := tb.Hosts()[1], tb.Nodes()[0]
	for _, to := range []string{"1", "h1", host.Addr.String(), host.Namespace, "n0", node.Addr.String()} {
		want := host.Namespace
		if strings.HasPrefix(to, "n") || to == node.Addr.String() {
			want = node.Namespace
		}
		cmd, stdout, stderr := lab(t, nil, "testbed", "rsh", "--name", name, to, "hostname;", "exit", "7")
		var failed *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &failed)
		require.Equal(t, 7, failed.ExitCode(), stderr)
		require.Equal(t, want+"\n", stdout.String())
	}
	cmd, _, stderr := lab(t, nil, "testbed", "rsh", "--name", name, "2", "true")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(),
		`"2" is no host of testbed `+name+
			": want an index from 0 to 1, h0, n0 for the host of switch 0, or an address of 10.77.0.0/16")
}
