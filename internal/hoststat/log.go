package hoststat

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// launchers is how many parents of a process are asked for its log: what torchrun, srun or a shell starts writes to
// them, and they to a file.
const launchers = 4

// Log returns the file that a process, or else who started it, writes its errors to; empty if that is none, such as a
// terminal.
func Log(pid int) string {
	for range 1 + launchers {
		for _, fd := range []int{2, 1} {
			path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
			if err != nil {
				continue
			}
			if s, err := os.Stat(path); err == nil && s.Mode().IsRegular() {
				return path
			}
		}
		if pid = parent(pid); pid <= 1 {
			break
		}
	}
	return ""
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

// LastWord returns the last line of a log that is not empty; empty if there is none.
func LastWord(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	text := make([]byte, min(size, lastBytes))
	n, _ := f.ReadAt(text, size-int64(len(text))) // of a file that is cut meanwhile: what is there
	lines := strings.Split(strings.TrimSpace(string(text[:n])), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
