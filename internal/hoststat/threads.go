package hoststat

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cgroup"
)

// Threads is the limit of processes and threads that leaves the fewest. The zero value is none.
type Threads struct {
	Most    int    // number that is allowed
	Running int    // number that is running
	By      string // the file of the control group, or "ulimit -u"; empty: there is no limit
}

// Left is how many more may be started, of a limit.
func (t Threads) Left() int { return max(t.Most-t.Running, 0) }

// Few reports whether threads may run out: there is no room for those of a group and of Go, and some.
func (t Threads) Few() bool {
	const spare = 32
	return t.By != "" && t.Left() < spare
}

// ThreadsHere reads the limits of this process, in files below root: pids.max of its control groups, and RLIMIT_NPROC,
// which the kernel does not apply to root and to processes with root's capabilities.
func ThreadsHere(root fs.FS) (t Threads) {
	t = threads(root, "proc/self")
	var l unix.Rlimit
	if !privileged(root, os.Getuid()) && unix.Getrlimit(unix.RLIMIT_NPROC, &l) == nil && l.Cur < uint64(spare(root)) {
		t.tighten(int(l.Cur), threadsOf(root, os.Getuid()), "ulimit -u")
	}
	return t
}

// tighten takes another limit if it leaves fewer.
func (t *Threads) tighten(most, running int, by string) {
	if other := (Threads{most, running, by}); t.By == "" || other.Left() < t.Left() {
		*t = other
	}
}

// threads looks at the control groups of a process, of version 2 or 1.
func threads(root fs.FS, proc string) (t Threads) {
	folders, _ := cgroup.Folders(root, proc, "pids")
	for _, folder := range folders {
		file := path.Join(folder, "pids.max")
		most, err := strconv.Atoi(strings.TrimSpace(read(root, file))) // "max": any number
		if err == nil && most >= 0 {
			t.tighten(most, int(whole(strings.TrimSpace(read(root, path.Join(folder, "pids.current"))))), "/"+file)
		}
	}
	return t
}

// privileged reports whether RLIMIT_NPROC does not hold for this process of a user: in the first user namespace it
// holds for neither root nor those with two capabilities (setrlimit(2)).
func privileged(root fs.FS, user int) bool {
	const admin, resource = 1 << 21, 1 << 24 // CAP_SYS_ADMIN, CAP_SYS_RESOURCE
	if !slices.Equal(strings.Fields(read(root, "proc/self/uid_map")), []string{"0", "0", "4294967295"}) {
		return false
	}
	for line := range strings.Lines(read(root, "proc/self/status")) {
		if name, value, _ := strings.Cut(line, ":"); name == "CapEff" {
			capabilities, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return user == 0 || err == nil && capabilities&(admin|resource) != 0
		}
	}
	return user == 0
}

// spare is a limit of threads that no user of this host is near, given how many there are in all.
func spare(root fs.FS) int {
	const room = 1 << 10 // beyond the threads that are there
	words := strings.Fields(read(root, "proc/loadavg"))
	if len(words) < 4 {
		return 1 << 20
	}
	_, all, _ := strings.Cut(words[3], "/") // running/there
	return int(whole(all)) + room
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
