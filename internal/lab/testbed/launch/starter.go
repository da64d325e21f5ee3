package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/thread"
)

// starter starts processes inside a testbed's namespaces, all from one thread: a process that
// is to die with its parent dies with the thread that started it, so that thread
// has to live as long as any of them.
type starter struct{ work chan func() }

func newStarter(tb *testbed.Testbed) (*starter, error) {
	s := &starter{make(chan func())}
	ready := make(chan error)
	thread.Start(func() {
		err := hostNames(tb)
		ready <- err
		if err != nil {
			return
		}
		for f := range s.work {
			f()
		}
	})
	return s, <-ready
}

// close ends the thread, and with it all processes that it has started and that still run.
func (s *starter) close() { close(s.work) }

// start starts a command inside a namespace.
func (s *starter) start(namespace string, cmd *exec.Cmd) error {
	failed := make(chan error)
	s.work <- func() { failed <- startInside(namespace, cmd) }
	if err := <-failed; err != nil {
		return fmt.Errorf("%s in namespace %s could not be started: %w", cmd.Args[0], namespace, err)
	}
	return nil
}

func startInside(namespace string, cmd *exec.Cmd) (err error) {
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, netns.Set(home), home.Close()) }()
	if err := enter(namespace); err != nil {
		return err
	}
	return cmd.Start()
}

// enter moves the calling thread, which must be locked, into a network namespace. The namespace's
// name becomes its host name: OpenMPI and NCCL tell hosts apart by it.
func enter(namespace string) error {
	there, err := netns.GetFromName(namespace)
	if err != nil {
		return err
	}
	defer func() { _ = there.Close() }()
	if err := netns.Set(there); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("a host name of its own: %w", err)
	}
	return unix.Sethostname([]byte(namespace))
}

// Exec replaces this process by a command inside a namespace of a testbed. It returns only what
// kept it from that.
func Exec(tb *testbed.Testbed, namespace string, command ...string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the thread becomes all that is left of the process
	if err := hostNames(tb); err != nil {
		return err
	}
	if err := enter(namespace); err != nil {
		return fmt.Errorf("namespace %s: %w", namespace, err)
	}
	return unix.Exec(path, command, os.Environ())
}
