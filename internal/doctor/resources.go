package doctor

import (
	"math"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"github.com/klauspost/cpuid/v2"
	"github.com/prometheus/procfs/sysfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cgroup"
	"github.com/torch-mcast/torch-mcast/internal/nccl/machine"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// resources looks at what this process may use.
func (g *gatherer) resources() {
	if _, err := g.self.Cgroups(); err != nil {
		g.unseen("limits of control groups", err.Error(), "")
	}
	g.CPU = quota(g.root)
	c := &g.CPU
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
	g.memory()
	most := cgroup.MemoryOf(g.root, "proc/self")
	g.Memory.Limit, g.Memory.LimitLeft, g.Memory.LimitBy = most.Limit, most.Left, most.By
	g.Limits = Limits{
		Files:  limit(unix.RLIMIT_NOFILE, true),
		Locked: limit(unix.RLIMIT_MEMLOCK, false),
	}
	g.Limits.threads(g.root)
	if s, err := sysfs.NewDefaultFS(); err == nil {
		if dmi, err := s.DMIClass(); err == nil && dmi.SystemVendor != nil {
			g.Cloud = strings.TrimSpace(*dmi.SystemVendor)
		}
	}
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

func (g *gatherer) memory() {
	m := &g.Memory
	if info, err := g.proc.Meminfo(); err == nil {
		if info.MemAvailableBytes != nil {
			m.Available = int(*info.MemAvailableBytes)
		}
		if info.HugePagesFree != nil {
			m.HugePages = int(*info.HugePagesFree)
		}
	}
	// always [madvise] never
	_, chosen, _ := strings.Cut(text(g.root, "sys/kernel/mm/transparent_hugepage/enabled"), "[")
	m.Transparent, _, _ = strings.Cut(chosen, "]")
	m.SharedTotal = -1
	var s unix.Statfs_t
	if unix.Statfs("/dev/shm", &s) == nil {
		m.SharedTotal = int(s.Blocks) * int(s.Bsize)
	}
}

// devices looks for GPUs and RDMA.
func (g *gatherer) devices() {
	d := &g.Devices
	if m, err := machine.Read("/"); err == nil {
		for _, gpu := range m.GPUs {
			d.GPUs = append(d.GPUs, gpu.BusID)
		}
	} else {
		g.unseen("GPUs", err.Error(), "")
	}
	d.GPUDriver = text(g.root, "sys/module/nvidia/version")
	if links, err := netlink.RdmaLinkList(); err == nil {
		for _, l := range links {
			d.RDMA = append(d.RDMA, l.Attrs.Name)
		}
	}
	if len(d.RDMA) == 0 { // kernels without netlink for it have the folder all the same
		entries, _ := os.ReadDir("/sys/class/infiniband")
		for _, e := range entries {
			d.RDMA = append(d.RDMA, e.Name())
		}
	}
	_, err := os.Stat("/dev/infiniband")
	d.RDMAUsable = err == nil
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
