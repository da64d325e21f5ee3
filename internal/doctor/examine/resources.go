package examine

import (
	"io/fs"
	"math"
	"runtime"
	"strings"
	"unsafe"

	"github.com/klauspost/cpuid/v2"
	"github.com/prometheus/procfs/sysfs"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cgroup"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// resources looks at what this process may use.
func (e *examination) resources() {
	if _, err := e.self.Cgroups(); err != nil {
		e.unseen("limits of control groups", err.Error(), "")
	}
	e.CPU = quota(e.root)
	c := &e.CPU
	c.Count, c.GOMAXPROCS, c.Arch = processors(), runtime.GOMAXPROCS(0), runtime.GOARCH
	c.SIMD, c.AVX2 = reduce.Active().String(), cpuid.CPU.Supports(cpuid.AVX2, cpuid.F16C)
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) == nil {
		c.Allowed = allowed.Count()
		for cpu := range 8 * int(unsafe.Sizeof(allowed)) {
			if allowed.IsSet(cpu) {
				c.Set = append(c.Set, cpu)
			}
		}
	}
	e.memory()
	most := cgroup.MemoryOf(e.root, "proc/self")
	e.Memory.Limit, e.Memory.LimitLeft, e.Memory.LimitBy = most.Limit, most.Left, most.By
	threads := hoststat.ThreadsHere(e.root)
	e.Limits = doctor.Limits{Files: limit(unix.RLIMIT_NOFILE, true), Locked: limit(unix.RLIMIT_MEMLOCK, false),
		Threads: threads.Most, Running: threads.Running, ThreadsBy: threads.By}
	if s, err := sysfs.NewDefaultFS(); err == nil {
		if dmi, err := s.DMIClass(); err == nil && dmi.SystemVendor != nil {
			e.Cloud = strings.TrimSpace(*dmi.SystemVendor)
		}
	}
}

// quota returns how many CPUs the tightest control group allows, 0 for no bound, which one that is,
// and in how many of its periods all was used up.
func quota(root fs.FS) (c doctor.CPU) {
	folders, second := cgroup.Folders(root, "proc/self", "cpu")
	for _, folder := range folders {
		var share, period float64
		if second {
			words := strings.Fields(text(root, folder+"/cpu.max"))
			if len(words) == 2 {
				share, period = float(words[0]), float(words[1]) // "max" is no number
			}
		} else {
			share = float(text(root, folder+"/cpu.cfs_quota_us"))
			period = float(text(root, folder+"/cpu.cfs_period_us"))
		}
		if share <= 0 || period <= 0 || c.Quota > 0 && share/period >= c.Quota {
			continue
		}
		stat := fields(root, folder+"/cpu.stat")
		c.Quota, c.QuotaBy = share/period, folder
		c.Periods, c.Throttled = stat["nr_periods"], stat["nr_throttled"]
	}
	return c
}

// limit returns one of this process: the hard or the soft one; -1 if there is none.
func limit(resource int, hard bool) int {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return 0
	}
	most := l.Cur
	if hard {
		most = l.Max
	}
	if most > math.MaxInt {
		return -1
	}
	return int(most)
}

func (e *examination) memory() {
	m := &e.Memory
	if info, err := e.proc.Meminfo(); err == nil {
		if info.MemAvailableBytes != nil {
			m.Available = int(*info.MemAvailableBytes)
		}
		if info.HugePagesFree != nil {
			m.HugePages = int(*info.HugePagesFree)
		}
	}
	// always [madvise] never
	_, chosen, _ := strings.Cut(text(e.root, "sys/kernel/mm/transparent_hugepage/enabled"), "[")
	m.Transparent, _, _ = strings.Cut(chosen, "]")
	m.SharedTotal = -1
	var s unix.Statfs_t
	if unix.Statfs("/dev/shm", &s) == nil {
		m.SharedTotal = int(s.Blocks) * int(s.Bsize)
	}
}

// processors returns how many CPUs the host has, even if this process may not use all.
func processors() int {
	if s, err := sysfs.NewDefaultFS(); err == nil {
		if all, err := s.CPUs(); err == nil && len(all) > 0 {
			return len(all)
		}
	}
	return runtime.NumCPU()
}
