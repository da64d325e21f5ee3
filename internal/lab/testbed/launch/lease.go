package launch

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Ports that runs of a testbed listen on: MASTER_PORT and the next, where `mcast bench` meets. They
// are below the ports that the kernel gives out by itself.
const (
	firstPort = 29500
	runPorts  = 2
	maxRuns   = 256 // at a time
)

// lease is everything that a run has to itself while it lasts: a locked file of the testbed. The
// file's number gives the ports, and the run's name and groups are in the file. The kernel drops
// the lock when this process ends, however it ends.
type lease struct {
	file  *os.File
	port  int
	group netip.Addr
}

// takeLease takes the first free ports, and the group that is asked for, or the first with
// so many free ones in a row: a job with subgroups has a group for each.
func takeLease(tb *testbed.Testbed, run string, asked netip.Addr, groups int) (_ *lease, err error) {
	guard, err := lockFile(tb, "runs.lock", unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, guard.Close()) }()
	l := &lease{group: asked}
	defer func() {
		if err != nil && l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
	}()
	taken, err := l.takePorts(tb)
	if err != nil {
		return nil, err
	}
	if !asked.IsValid() {
		if l.group, err = freeGroup(tb.Groups(), taken, groups); err != nil {
			return nil, err
		}
	}
	text := run + "\n"
	for g := l.group; groups > 0; groups-- {
		text += g.String() + "\n"
		g = g.Next()
	}
	if _, err := l.file.WriteAt([]byte(text), 0); err != nil {
		return nil, err
	}
	return l, nil
}

// release gives the lease back, after the last process of the run.
func (l *lease) release() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }

// takePorts locks the first file that no run has, and returns the groups of the runs that go on. A
// run that could not release its file was killed: its processes are ended.
func (l *lease) takePorts(tb *testbed.Testbed) (taken map[netip.Addr]bool, err error) {
	taken = make(map[netip.Addr]bool)
	for n := range maxRuns {
		name := fmt.Sprintf("run%d.lock", n)
		if _, err := os.Stat(filepath.Join(tb.Dir(), name)); err != nil && l.file != nil {
			return taken, nil // so there are no further ones: the first free one is always taken
		}
		file, err := lockFile(tb, name, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			if _, err := readLease(filepath.Join(tb.Dir(), name), taken); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		killed, err := readLease(file.Name(), make(map[netip.Addr]bool))
		if err == nil && killed != "" {
			err = errors.Join(sweep(killed), file.Truncate(0))
		}
		if l.file == nil {
			l.file, l.port = file, firstPort+runPorts*n
		} else {
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			return nil, err
		}
	}
	if l.file == nil {
		return nil, fmt.Errorf("testbed %s has %d runs already, as many as are allowed", tb.Name(), maxRuns)
	}
	return taken, nil
}

// freeGroup returns the first of so many groups in a row that nobody has.
func freeGroup(all []netip.Addr, taken map[netip.Addr]bool, groups int) (netip.Addr, error) {
	free := 0
	for i, g := range all {
		if free++; taken[g] {
			free = 0
		}
		if free == groups {
			return all[i+1-groups], nil
		}
	}
	return netip.Addr{},
		fmt.Errorf("no %d of the testbed's %d groups in a row are free: runs that go on have %d; name one to share it",
			groups, len(all), len(taken))
}

// readLease returns the name of a run, empty if it has released its lease, and adds its groups to a
// set.
func readLease(path string, groups map[netip.Addr]bool) (run string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	run, rest, _ := strings.Cut(string(text), "\n")
	for line := range strings.Lines(rest) {
		g, err := netip.ParseAddr(strings.TrimSpace(line))
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		groups[g] = true
	}
	return run, nil
}

// lockFile opens a file in the testbed's directory and locks it; how is an operation of flock(2).
func lockFile(tb *testbed.Testbed, name string, how int) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(tb.Dir(), name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), how)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("%s: %w", file.Name(), err), file.Close())
		}
	}
}
