package examine

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/cgroup"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// tree makes a file system of files with one text each.
func tree(files map[string]string) fstest.MapFS {
	fs := make(fstest.MapFS)
	for name, text := range files {
		fs["sys/fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return fs
}

func TestControlGroups(t *testing.T) {
	const second, first = "0::/pods/pod1\n", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n"
	for name, c := range map[string]struct {
		files  map[string]string
		groups string
		quota  doctor.CPU
		memory cgroup.Memory
	}{
		"version 2, the tightest of two": {map[string]string{
			"cgroup.controllers": "cpu memory", "pods/pod1/cpu.max": "400000 100000", "pods/cpu.max": "150000 100000",
			"pods/cpu.stat":        "usage_usec 5\nnr_periods 100\nnr_throttled 20",
			"pods/pod1/memory.max": "1000000", "pods/pod1/memory.current": "400000",
			"pods/pod1/memory.stat": "anon 1\ninactive_file 100000",
			"pods/memory.max":       "max",
		}, second, doctor.CPU{Quota: 1.5, QuotaBy: "sys/fs/cgroup/pods", Periods: 100, Throttled: 20},
			cgroup.Memory{Limit: 1000000, Left: 700000, By: "sys/fs/cgroup/pods/pod1"}},
		"version 2 without bounds": {map[string]string{"cgroup.controllers": "cpu", "pods/pod1/cpu.max": "max 100000",
			"pods/pod1/memory.max": "max"}, second, doctor.CPU{}, cgroup.Memory{}},
		"version 2 of a container, whose path is the host's": {map[string]string{"cgroup.controllers": "cpu",
			"cpu.max": "50000 100000"}, second, doctor.CPU{Quota: 0.5, QuotaBy: "sys/fs/cgroup"}, cgroup.Memory{}},
		"version 1": {map[string]string{
			"cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "250000", "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
			"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000",
			"memory/docker/abc/memory.limit_in_bytes": "2000000", "memory/docker/abc/memory.usage_in_bytes": "500000",
			"memory/memory.limit_in_bytes": "9223372036854771712", "unified/cgroup.controllers": "",
		}, first, doctor.CPU{Quota: 2.5, QuotaBy: "sys/fs/cgroup/cpu,cpuacct/docker/abc"},
			cgroup.Memory{Limit: 2000000, Left: 1500000, By: "sys/fs/cgroup/memory/docker/abc"}},
		"version 1 of a container": {map[string]string{"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"},
			first, doctor.CPU{Quota: 1, QuotaBy: "sys/fs/cgroup/cpu"}, cgroup.Memory{}},
		"nothing mounted": {nil, second, doctor.CPU{}, cgroup.Memory{}},
		"no group":        {nil, "", doctor.CPU{}, cgroup.Memory{}},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(c.files)
			root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(c.groups)}
			assert.Equal(t, c.quota, quota(root))
			assert.Equal(t, c.memory, cgroup.MemoryOf(root, "proc/self"))
		})
	}
}
