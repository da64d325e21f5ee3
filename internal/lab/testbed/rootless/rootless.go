// Package rootless gives an ordinary user a testbed without root: this program runs itself once
// more in a user namespace, in which that user is root, with network, mounts and processes of its
// own. Everything ends with the command that began it, so only commands that take down all that
// they build can run so; see docs/decisions/0040-rootless.md.
package rootless

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Again runs this program once more, as root of namespaces of its own: with the arguments
// of prepare, which say that Inside is to be called, and behind them its own. It returns the exit
// status to end with.
func Again(prepare ...string) (status int, err error) {
	runtime.LockOSThread() // Pdeathsig is sent when this thread ends
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", append(prepare, os.Args[1:]...)...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL, // it is the first process of its namespace: all others end with it
	}
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup it goes on
		signal.Notify(heard, syscall.SIGHUP)
	}
	defer signal.Stop(heard)
	if err := cmd.Start(); err != nil {
		return 0, Explain(err)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-heard:
				_ = cmd.Process.Signal(s) // or it has just ended
			case <-ended:
				return
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return Status(cmd.ProcessState), nil
}

// Status is what a shell would say of how a process ended.
func Status(state *os.ProcessState) int {
	if how, is := state.Sys().(syscall.WaitStatus); is && how.Signaled() {
		return 128 + int(how.Signal())
	}
	return state.ExitCode()
}

// Inside makes the namespaces that Again has made fit for a testbed: its processes in /proc, a /run
// to write to, and a loopback interface that is up. The caller's goroutine then has its thread to
// itself, from which it is to exec the command.
func Inside() error {
	runtime.LockOSThread()
	for _, f := range []func() error{
		// Again has asked for this of the first thread alone, and whichever execs is the next first.
		func() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") }, // mounts are not seen outside
		func() error {
			return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		},
		func() error { return unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755") },
		loopback,
	} {
		if err := f(); err != nil {
			return Explain(err)
		}
	}
	return nil
}

func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("loopback interface: %w", err)
	}
	return nil
}
