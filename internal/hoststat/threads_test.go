package hoststat

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestThreads: of all control groups above a process the one counts that leaves the fewest.
func TestThreads(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	second := fstest.MapFS{
		"proc/7/cgroup":                       file("0::/pod/rank\n"),
		"sys/fs/cgroup/pod/rank/pids.max":     file("max\n"),
		"sys/fs/cgroup/pod/rank/pids.current": file("9\n"),
		"sys/fs/cgroup/pod/pids.max":          file("64\n"),
		"sys/fs/cgroup/pod/pids.current":      file("40\n"),
		"sys/fs/cgroup/pids.max":              file("1000\n"),
		"sys/fs/cgroup/pids.current":          file("500\n"),
		"sys/fs/cgroup/cgroup.controllers":    file("pids\n"),
	}
	require.Equal(t, Threads{64, 40, "/sys/fs/cgroup/pod/pids.max"}, threads(second, "proc/7"))
	first := fstest.MapFS{
		"proc/7/cgroup":                       file("5:cpu,cpuacct:/a\n4:pids:/pod\n"),
		"sys/fs/cgroup/pids/pod/pids.max":     file("7\n"),
		"sys/fs/cgroup/pids/pod/pids.current": file("5\n"),
	}
	found := threads(first, "proc/7")
	require.Equal(t, Threads{7, 5, "/sys/fs/cgroup/pids/pod/pids.max"}, found)
	require.Equal(t, 2, found.Left())
	require.Zero(t, threads(fstest.MapFS{"proc/7/cgroup": file("garbage")}, "proc/7"))
	found.tighten(0, 3, "none")
	require.Equal(t, Threads{0, 3, "none"}, found, "none may be started, and that is a limit")
	require.Zero(t, found.Left())
}

// TestWhoseLimitHolds: RLIMIT_NPROC holds for who has neither of two capabilities, and is not looked at where no user
// of the host can be near it.
func TestWhoseLimitHolds(t *testing.T) {
	const first, within = "0 0 4294967295", "0 1000 65536"
	for _, c := range []struct {
		user                int
		users, capabilities string
		want                bool
	}{
		{1000, first, "0000000000000000", false}, {1000, first, "0000000000200000", true},
		{1000, first, "0000000001000000", true},
		{1000, first, "x", false}, {0, first, "00000000a80425fb", true}, {0, first, "000001ffffffffff", true},
		{0, within, "000001ffffffffff", false}, {1000, within, "0000000000200000", false}, {0, "", "000001ffffffffff", false},
	} {
		require.Equal(t, c.want, privileged(fstest.MapFS{
			"proc/self/status":  {Data: []byte("Name:\tx\nCapEff:\t" + c.capabilities + "\n")},
			"proc/self/uid_map": {Data: []byte("         " + c.users + "\n")},
		}, c.user), c)
	}
	require.Equal(t, 1<<10+250, spare(fstest.MapFS{"proc/loadavg": {Data: []byte("0.1 0.2 0.3 2/250 999")}}))
	require.Equal(t, 1<<20, spare(fstest.MapFS{}))
}

// TestThreadsOfAUser counts those of all its processes, and of nobody else.
func TestThreadsOfAUser(t *testing.T) {
	status := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"proc/1/status": status("Name:\tinit\nUid:\t0\t0\t0\t0\nThreads:\t1\n"),
		"proc/8/status": status("Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nThreads:\t12\n"),
		"proc/9/status": status("Name:\tbash\nUid:\t1000\t1000\t1000\t1000\nThreads:\t1\n"),
		"proc/x/status": status("Uid:\t1000\nThreads:\t99\n"),
	}
	require.Equal(t, 13, threadsOf(root, 1000))
	require.Zero(t, threadsOf(root, 7))
}
