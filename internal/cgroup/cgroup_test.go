package cgroup

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
)

// TestFolders: of version 1 and 2, in containers, and where /sys is another's.
func TestFolders(t *testing.T) {
	const first = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n"
	for name, c := range map[string]struct {
		groups string
		files  []string
		want   []string
		second bool
	}{
		"version 2": {"0::/a/b\n",
			[]string{"sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/a/b/cpu.max"},
			[]string{"sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"}, true},
		"version 2, the host's path": {"0::/pods/x\n", []string{"sys/fs/cgroup/cgroup.controllers"},
			[]string{"sys/fs/cgroup"}, true},
		"version 2, none is mounted": {"0::/a\n", []string{"sys/fs/cgroup/x"}, nil, false},
		"version 1": {first, []string{"sys/fs/cgroup/cpu,cpuacct/docker/abc/x"},
			[]string{"sys/fs/cgroup/cpu,cpuacct/docker/abc", "sys/fs/cgroup/cpu,cpuacct/docker", "sys/fs/cgroup/cpu,cpuacct"},
			false},
		"version 1, by its name alone": {first, []string{"sys/fs/cgroup/cpu/x"}, []string{"sys/fs/cgroup/cpu"}, false},
		"version 1, none is mounted":   {first, []string{"sys/fs/cgroup/unified/cgroup.controllers"}, nil, false},
		"beside version 1": {"4:memory:/\n0::/a\n",
			[]string{"sys/fs/cgroup/memory/x", "sys/fs/cgroup/unified/cgroup.controllers", "sys/fs/cgroup/unified/a/x"},
			[]string{"sys/fs/cgroup/unified/a", "sys/fs/cgroup/unified"}, true},
		"within ip netns exec": {"0::/a\n",
			[]string{"proc/3/root/sys/fs/cgroup/cgroup.controllers", "proc/3/root/sys/fs/cgroup/a/x"},
			[]string{"proc/3/root/sys/fs/cgroup/a", "proc/3/root/sys/fs/cgroup"}, true},
		"version 1 within ip netns exec": {first, []string{"proc/3/root/sys/fs/cgroup/cpu/x"},
			[]string{"proc/3/root/sys/fs/cgroup/cpu"}, false},
		"garbage": {"cpu\n::\n0\n", []string{"sys/fs/cgroup/cgroup.controllers"}, nil, false},
		"nothing": {"", nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{
				"proc/7/cgroup": {Data: []byte(c.groups)},
				"proc/7/status": {Data: []byte("Name:\trank\nPPid:\t5\n")},
				"proc/5/status": {Data: []byte("Name:\tip\nPPid:\t3\n")}, // hidden from it, too
				"proc/3/status": {Data: []byte("Name:\tsh\nPPid:\t3\n")},
			}
			for _, f := range c.files {
				root[f] = &fstest.MapFile{}
			}
			folders, second := Folders(root, "proc/7", "cpu")
			assert.Equal(t, c.want, folders)
			assert.Equal(t, c.second, second)
		})
	}
}
