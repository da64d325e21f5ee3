package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// stock is what this process holds.
type stock struct {
	threads, descriptors, goroutines int
	resident                         int // bytes, of regions that it shares with others as well
}

// takeStock counts what this process holds, from proc(5).
func takeStock() (s stock, err error) {
	s.goroutines = runtime.NumGoroutine()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return s, err
	}
	s.descriptors = len(open) - 1 // without the descriptor of the folder itself
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Threads":
			_, err = fmt.Sscan(value, &s.threads)
		case "VmRSS":
			if _, err = fmt.Sscan(value, &s.resident); err == nil {
				s.resident <<= 10
			}
		}
		if err != nil {
			return s, fmt.Errorf("/proc/self/status: %s: %w", strings.TrimSpace(line), err)
		}
	}
	return s, nil
}

// cpuTime is how long this process has computed so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of oneself it does not fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
