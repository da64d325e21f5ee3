package hoststat

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Threads is the limit of processes and threads that leaves the fewest. The zero value is none.
type Threads struct {
	Most    int    // that are allowed
	Running int    // that are there
	By      string // pids.max or "ulimit -u"
}

// Left is how many more may be started; only if there is a limit.
func (t Threads) Left() (n int, limited bool) { return max(t.Most-t.Running, 0), t.Most > 0 }

// ThreadsHere looks at the limits of this process, in files below root: pids.max of its control groups and, unless it is root's, RLIMIT_NPROC.
func ThreadsHere(root fs.FS) (t Threads) {
	user := os.Geteuid()
	t = threads(root, "proc/self")
	var l unix.Rlimit
	if user != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &l) == nil && l.Cur < 1<<31 {
		t.tighten(int(l.Cur), threadsOf(root, os.Getuid()), "ulimit -u")
	}
	return t
}

// tighten takes another limit if it leaves fewer.
func (t *Threads) tighten(most, running int, by string) {
	if t.Most == 0 || most-running < t.Most-t.Running {
		*t = Threads{most, running, by}
	}
}

// threads looks at the control groups of a process, of version 2 or 1.
func threads(root fs.FS, proc string) (t Threads) {
	groupsOf(root, proc, "pids", func(folder string) {
		most, err := strconv.Atoi(strings.TrimSpace(read(root, path.Join(folder, "pids.max")))) // "max": any number
		if err == nil && most > 0 {
			t.tighten(most, int(whole(strings.TrimSpace(read(root, path.Join(folder, "pids.current"))))), "pids.max")
		}
	})
	return t
}

// threadsOf counts the threads of a user.
func threadsOf(root fs.FS, user int) (n int) {
	all, _ := fs.Glob(root, "proc/[0-9]*/status") // the pattern is right
	for _, at := range all {
		own, threads := false, 0
		for line := range strings.Lines(read(root, at)) {
			name, value, _ := strings.Cut(line, ":")
			words := strings.Fields(value)
			switch {
			case len(words) == 0:
			case name == "Uid":
				own = words[0] == strconv.Itoa(user)
			case name == "Threads":
				threads = int(whole(words[0]))
			}
		}
		if own {
			n += threads
		}
	}
	return n
}
