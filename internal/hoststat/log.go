package hoststat

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// launchers is how many parents of a process are asked for its log: what torchrun, srun or a shell starts writes to
// them, and they to a file.
const launchers = 4

// Log is a file that a process writes its errors to. It is kept open: later its name may be another file's, or the
// process gone that it had this name for.
type Log struct {
	Name string
	file *os.File
}

// OpenLog returns the log of a process of this host, or else of a process that started it; nil if neither is a regular
// file, but a terminal or the like.
func OpenLog(pid int) *Log {
	for range 1 + launchers {
		for _, fd := range []int{2, 1} {
			if l := open(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); l != nil {
				return l
			}
		}
		if pid = parent(pid); pid <= 1 {
			break
		}
	}
	return nil
}

// open opens what a descriptor stands for, if it is a file.
func open(descriptor string) *Log {
	name, err := os.Readlink(descriptor)
	if err != nil {
		return nil
	}
	if s, err := os.Stat(descriptor); err != nil || !s.Mode().IsRegular() { // Stat follows it, also to a renamed file
		return nil
	}
	f, err := os.OpenFile(descriptor, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &Log{name, f}
}

// Close closes it; nil is closed.
func (l *Log) Close() {
	if l != nil {
		_ = l.file.Close()
	}
}

// parent is who started a process; 0: it is not known.
func parent(pid int) (by int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:")
	_, _ = fmt.Sscan(rest, &by) // 0 if it is not there
	return by
}

// lastBytes of a log are looked at.
const lastBytes = 4096

// LastLine returns the last line that is not empty; empty if there is none.
func (l *Log) LastLine() string {
	size, err := l.file.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	text := make([]byte, min(size, lastBytes))
	n, _ := l.file.ReadAt(text, size-int64(len(text))) // if the file is cut meanwhile, the bytes that are there
	lines := strings.Split(strings.TrimSpace(string(text[:n])), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
