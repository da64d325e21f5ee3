package testbed

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRootDownEndsWhatRuns(t *testing.T) {
	tb := up(t, Spec{Hosts: 2})
	started := map[string]*exec.Cmd{"sleep 1000": nil, "trap '' TERM; sleep 1000 & wait; wait": nil, "kill -STOP $$": nil}
	for script := range started {
		cmd := exec.Command("sh", "-c", script)
		require.NoError(t, tb.In(tb.Hosts()[1].Namespace, cmd.Start))
		started[script] = cmd
	}
	outside := exec.Command("sleep", "1000")
	require.NoError(t, outside.Start())
	pids, err := tb.Processes()
	require.NoError(t, err)
	for _, cmd := range started {
		require.Contains(t, pids, cmd.Process.Pid)
	}
	ended := make(chan error, len(started))
	for _, cmd := range started {
		go func() { ended <- cmd.Wait() }() // what has ended is still a process until then
	}
	require.NoError(t, tb.Down())
	for range started {
		require.ErrorContains(t, <-ended, "signal")
	}
	requireGone(t, tb.Name())
	require.NoError(t, tb.Down(), "twice")
	require.NoError(t, outside.Process.Signal(syscall.Signal(0)), "a process that is not in the testbed lives")
	require.NoError(t, outside.Process.Kill())
	require.Error(t, outside.Wait())
}

func TestRootUpOfWhatIsUp(t *testing.T) {
	tb := up(t, twoByTwo)
	spec := tb.Spec()
	before, err := inodeOf(filepath.Join(namespaceRoot, tb.Hosts()[0].Namespace))
	require.NoError(t, err)
	require.NoError(t, tb.SetLoss(tb.Hosts()[2].Namespace, Loss{Share: 0.25}))
	require.NoError(t, tb.SetLink(tb.Hosts()[1].Namespace, false))
	again, err := Up(t.Context(), spec, nil)
	require.NoError(t, err)
	require.Equal(t, tb.Hosts(), again.Hosts())
	after, err := inodeOf(filepath.Join(namespaceRoot, tb.Hosts()[0].Namespace))
	require.NoError(t, err)
	require.Equal(t, before, after, "it is kept")
	require.Empty(t, faulty(t, again))

	other := spec
	other.Hosts = 5
	_, err = Up(t.Context(), other, nil)
	require.ErrorIs(t, err, ErrOther)

	require.NoError(t, deleteNamespace(tb.Hosts()[2].Namespace))
	_, err = tb.Counters()
	require.ErrorContains(t, err, tb.Hosts()[2].Namespace)
	mended, err := Up(t.Context(), spec, nil)
	require.NoError(t, err)
	all := openAll(t, mended)
	reach(t, all[0], mended.Hosts()[2].Addr, all[2])
}

func TestRootTwoUpsAtOnceBuildOne(t *testing.T) {
	name := newName(t)
	errs := make(chan error)
	for range 2 {
		go func() {
			_, err := Up(t.Context(), Spec{Name: name, Hosts: 3}, nil)
			errs <- err
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
}

func TestRootAnUpThatIsKilled(t *testing.T) {
	total := 0
	count := up(t, twoByTwo)
	spec := count.Spec()
	require.NoError(t, count.Down())
	_, err := Up(t.Context(), spec, func(_, n int) { total = n })
	require.NoError(t, err)
	for i, at := range []int{1, total / 4, total / 2, 3 * total / 4, total - 1} {
		name := newName(t)
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d", killAt, at), "TESTBED_TEST_NAME="+name)
		require.ErrorContains(t, child.Run(), "killed")
		left, err := found(name)
		require.NoError(t, err)
		require.NotEmpty(t, left)
		_, err = Open(name)
		require.ErrorContains(t, err, "mcast-lab testbed down --name "+name)
		if i%2 == 0 {
			require.NoError(t, os.RemoveAll(stateDir(name)), "nor does it need its file")
			require.NoError(t, Down(name))
			requireGone(t, name)
		}
		tb, err := Up(t.Context(), Spec{Name: name, Hosts: 4, Leaves: 2, Spines: 2}, nil)
		require.NoError(t, err)
		all := openAll(t, tb)
		reach(t, all[0], tb.Hosts()[3].Addr, all[3])
	}
}

func TestRootAnUpThatIsCancelledLeavesNothing(t *testing.T) {
	name := newName(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Up(ctx, Spec{Name: name, Hosts: 4, Leaves: 2, Spines: 2}, func(done, total int) {
		if done == total/2 {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	requireGone(t, name)
}

func TestRootDownTakesWhatIsHalfMade(t *testing.T) {
	name := newName(t)
	require.NoError(t, os.MkdirAll(namespaceRoot, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(namespaceRoot, namespacePrefix+name+"-h3"), nil, 0o444))
	require.NoError(t, os.MkdirAll(stateDir(name), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(stateDir(name), "testbed.json"), []byte("{"), 0o644))
	names, err := List()
	require.NoError(t, err)
	require.Contains(t, names, name)
	_, err = Open(name)
	require.ErrorContains(t, err, "no testbed "+name+" is up")
	require.NoError(t, Down(name))
	requireGone(t, name)
}

// TestRootDownAsksOnce has a process that would take a second SIGTERM for impatience.
func TestRootDownAsksOnce(t *testing.T) {
	tb := up(t, Spec{Hosts: 1})
	cmd := exec.Command("sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tb.In(tb.Hosts()[0].Namespace, cmd.Start))
	_, err = io.ReadFull(out, make([]byte, len("ready\n")))
	require.NoError(t, err)
	said := make(chan string)
	go func() {
		text, _ := io.ReadAll(out)
		_ = cmd.Wait()
		said <- string(text)
	}()
	require.NoError(t, tb.Down())
	require.LessOrEqual(t, strings.Count(<-said, "asked"), 1)
}

// TestRootDownAfterIPMadeANamespace runs where /run is new and seen by nobody else: then nothing is
// mounted on /run/netns, and the first `ip netns add` mounts it.
func TestRootDownAfterIPMadeANamespace(t *testing.T) {
	name := newName(t)
	child := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		"mount -t tmpfs none /run && exec "+os.Args[0])
	child.Env = append(os.Environ(), beside+"="+name)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func upBesideIP(name string) error {
	if _, err := Up(context.Background(), Spec{Name: name, Hosts: 1}, nil); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "netns", "add", name+"-other").CombinedOutput(); err != nil {
		return fmt.Errorf("ip netns add: %w: %s", err, out)
	}
	if err := Down(name); err != nil {
		return err
	}
	left, err := os.ReadDir(namespaceRoot)
	if err == nil && (len(left) != 1 || left[0].Name() != name+"-other") {
		err = fmt.Errorf("left: %v", left)
	}
	return err
}
