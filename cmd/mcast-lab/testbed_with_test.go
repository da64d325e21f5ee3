package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const nobody = 65534 // an ordinary user that every machine has

// everybodys returns the paths of copies of this program and of mcast that any user may run.
var everybodys = sync.OnceValues(func() (p programs.Paths, err error) {
	folder, err := systest.Programs()
	if err != nil {
		return p, err
	}
	p = programs.In(forAll)
	return p, errors.Join(copyProgram(programs.In(folder).Mcast, p.Mcast), copyProgram(os.Args[0], p.Lab))
})

func copyProgram(from, to string) error {
	program, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, program, 0o755), os.Chmod(to, 0o755)) // Chmod: the umask may have taken bits away
}

// ordinary prepares a run by an ordinary user. $LAB is the program, $MCAST the other one.
func ordinary(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root becomes an ordinary user for this test")
	}
	p, err := everybodys()
	require.NoError(t, err)
	cmd, stdout, stderr = lab(t, []string{"LAB=" + p.Lab, "MCAST=" + p.Mcast}, args...)
	cmd.Path, cmd.Dir = p.Lab, forAll
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd, stdout, stderr
}

// requireRootless skips a test where this machine has no namespaces for ordinary users.
func requireRootless(t *testing.T) {
	t.Helper()
	cmd, _, stderr := ordinary(t, "testbed", "with", "--hosts", "1", "--", "true")
	if err := cmd.Run(); err != nil && strings.Contains(stderr.String(), "a testbed without root needs a user namespace") {
		t.Skip(stderr)
	}
}

func TestTestbedOfAnOrdinaryUser(t *testing.T) {
	requireRootless(t)
	name := fmt.Sprintf("mcast%d-with", os.Getpid())
	cmd, stdout,
		stderr := ordinary(t, "testbed", "with", "--name", name, "--hosts", "2", "--rate", "500mbit", "--", "sh", "-c",
		`"$LAB" testbed run --name `+name+` --switch -- "$MCAST" bench overlap --bytes 64K --iters 2 --json && exit 7`)
	var failed *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &failed)
	require.Equal(t, 7, failed.ExitCode(), stderr)
	all := results(t, stdout.Bytes())
	require.Len(t, all, 3)
	for _, r := range all {
		require.Zero(t, r.Wrong)
		require.Equal(t, "udp", r.Fabric)
	}
	require.Equal(t, "switch", all[2].Algorithm)
	for _, outside := range []string{"/run/*%s*", "/run/*/*%s*", "/run/*/*%s*/*"} {
		seen, err := filepath.Glob(fmt.Sprintf(outside, name))
		require.NoError(t, err)
		require.Empty(t, seen, "nothing of it is seen outside")
	}
}

// TestTestbedFindsThePrograms: with any PATH, commands in a testbed find both programs by their names.
func TestTestbedFindsThePrograms(t *testing.T) {
	requireRootless(t)
	name := fmt.Sprintf("mcast%d-path", os.Getpid())
	const both = "command -v mcast; command -v mcast-lab; "
	cmd, stdout, stderr := ordinary(t, "testbed", "with", "--name", name, "--hosts", "1", "--", "sh", "-c",
		both+`PATH=/usr/sbin:/usr/bin:/sbin:/bin; "$LAB" testbed run --name `+name+` -- sh -c '`+both+
			`'; "$LAB" testbed rsh --name `+name+` 0 '`+both+`'`)
	require.NoError(t, cmd.Run(), stderr)
	p := programs.In(forAll)
	require.Equal(t, strings.Repeat(p.Mcast+"\n"+p.Lab+"\n", 3), stdout.String())
}

// What runs in such a testbed ends with it, however it ends.
func TestTestbedOfAnOrdinaryUserEnds(t *testing.T) {
	requireRootless(t)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
		cmd, _, stderr := ordinary(t, "testbed", "with", "--hosts", "1", "--", "sh", "-c",
			`"$LAB" testbed run -- sh -c 'setsid sleep 1000 & echo ready; wait'`)
		cmd.Stdout = nil // so that it can be read as it comes, until nobody holds it any more
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line := make([]byte, len("ready\n"))
		_, err = io.ReadFull(out, line)
		require.NoError(t, err, stderr)
		require.NoError(t, cmd.Process.Signal(sig))
		_, err = io.ReadAll(out)
		require.NoError(t, err)
		require.Error(t, cmd.Wait(), sig)
		if sig != os.Kill {
			require.Contains(t, stderr.String(), sig.String()+" signal received")
		}
	}
}

// Under nohup it outlives its terminal.
func TestTestbedOfAnOrdinaryUserIgnoresAHangup(t *testing.T) {
	requireRootless(t)
	cmd, _, stderr := ordinary(t)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c",
		`trap "" HUP && exec "$LAB" testbed with --hosts 1 -- sh -c 'echo ready; read line && echo "$line"'`}
	cmd.Stdout = nil
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := make([]byte, len("ready\n"))
	_, err = io.ReadFull(out, said)
	require.NoError(t, err, stderr)
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	_, err = io.WriteString(in, "goes on\n")
	require.NoError(t, err)
	all, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Equal(t, "goes on\n", string(all), stderr)
	require.NoError(t, cmd.Wait(), stderr)
}

// Where ordinary users have no namespaces, the setting and the remedy are named.
func TestTestbedWhereUsersHaveNoNamespaces(t *testing.T) {
	requireRootless(t)
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("this test drops capabilities with setpriv, of util-linux")
	}
	cmd, _, stderr := ordinary(t)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c",
		`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all "$LAB" testbed with --hosts 1 -- true`}
	cmd.SysProcAttr.Credential = &syscall.Credential{NoSetGroups: true} // root there
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER                  // max_user_namespaces is its own setting
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: nobody, Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: nobody, Size: 1}}
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "no namespaces are left to users (user.max_user_namespaces=0): `sudo sysctl "+
		"user.max_user_namespaces=10000` allows it; or have root build it, with sudo")
}

func TestTestbedWith(t *testing.T) {
	name := fmt.Sprintf("mcast%d-root", os.Getpid())
	tb := upTestbed(t, name, 1)
	cmd, _, stderr := lab(t, nil, "testbed", "with", "--name", name, "--hosts", "1", "--", "true")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "testbed "+name+" is up already")
	require.NoError(t, tb.Down())
	cmd, _, stderr = lab(t, nil, "testbed", "with", "--name", name, "--hosts", "1", "--", "mcast-no-such-program")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "mcast-no-such-program")
	cmd, stdout,
		stderr := lab(t, nil, "testbed", "with", "--name", name, "--hosts", "1", "--", "sh", "-c", "ls /run/netns")
	require.NoError(t, cmd.Run(), stderr)
	require.Contains(t, stdout.String(), "mcast-"+name+"-h0")
	require.NoFileExists(t, "/run/netns/mcast-"+name+"-h0")
}
