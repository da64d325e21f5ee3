package experiment

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock makes sure that nobody else measures on this machine: the two would measure each other. The kernel
// gives the lock back when this process ends, however it ends.
func Lock(path string) (unlock func() error, err error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("another experiment is being done on this machine, by %s, and two at once would "+
			"measure each other: wait until it is over, or end it", holder(f)), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f.Close, nil
}

// openLock opens a file that any user may have made, and leaves it readable to all. Nothing is written
// into it, since another user may not: the kernel knows who holds it.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		if f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444); errors.Is(err, os.ErrExist) {
			return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		}
	}
	return f, err
}

// holder names the process that holds a lock, by /proc/locks.
func holder(f *os.File) string {
	var s unix.Stat_t
	text, err := os.ReadFile("/proc/locks")
	if err := errors.Join(err, unix.Fstat(int(f.Fd()), &s)); err == nil {
		file := fmt.Sprintf("%02x:%02x:%d", unix.Major(s.Dev), unix.Minor(s.Dev), s.Ino)
		for line := range strings.Lines(string(text)) {
			// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
			if w := strings.Fields(line); len(w) > 5 && w[1] == "FLOCK" && w[5] == file {
				return "process " + w[4]
			}
		}
	}
	return "a process that is not seen from here"
}
