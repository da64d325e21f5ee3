package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

const mebibyte = 1 << 20

// kernelRules are about the kernel's features and the limits that it sets sockets.
var kernelRules = []rule{
	{"seccomp", callsBlocked},
	{"kernel-lacks", kernelLacks},
	{"kernel-timers", func(f *Facts) []Finding {
		return one(f.Kernel.Release != "" && !f.Kernel.TCPTimers, Note, "kernel "+f.Kernel.Release,
			"TCP waits 200 ms before it repeats (Linux before 6.15)",
			"credits and repairs are few, so a loss of one is often found by that timer alone",
			fmt.Sprintf("sudo ip route change %s dev %s rto_min 5ms (the rest as ip route show has it)", f.network(),
				f.Chosen.Name))
	}},
	{"receive-buffer", func(f *Facts) []Finding {
		n := f.Net
		return one(n.RmemMax > 0 && n.RmemMax < mebibyte, Warning, "net.core.rmem_max",
			fmt.Sprintf("it is %d: a receiver's socket surely holds %d chunks of %d bytes", n.RmemMax,
				n.WindowFor, n.ChunkBytes),
			"so much may be on its way from all roots together; more is lost and repaired",
			persist("net.core.rmem_max=16777216"))
	}},
	{"send-buffer", func(f *Facts) []Finding {
		return one(f.Net.WmemMax > 0 && f.Net.WmemMax < batch.FirstBacklog/2, Warning, "net.core.wmem_max",
			fmt.Sprintf("it is %d", f.Net.WmemMax), "the link runs dry between two turns of a sender",
			persist("net.core.wmem_max=4194304"))
	}},
	{"receive-backlog", func(f *Facts) []Finding {
		return one(f.Net.Backlog > 0 && f.Net.Backlog < 1000, Warning, "net.core.netdev_max_backlog",
			fmt.Sprintf("it is %d packets", f.Net.Backlog),
			"bursts of several roots at once are dropped before they reach a socket",
			persist("net.core.netdev_max_backlog=10000"))
	}},
	{"option-memory", func(f *Facts) []Finding {
		return one(f.Net.OptmemMax > 0 && f.Net.OptmemMax < 20480, Warning, "net.core.optmem_max",
			fmt.Sprintf("it is %d bytes", f.Net.OptmemMax),
			"filters of sockets, and notices of data sent without a copy, take this memory",
			persist("net.core.optmem_max=131072"))
	}},
	{"few-ports", func(f *Facts) []Finding {
		return one(f.Net.Ports > 0 && f.Net.Ports < 4096, Warning, "net.ipv4.ip_local_port_range",
			fmt.Sprintf("it has %d ports", f.Net.Ports), "each rank connects to all others for reductions",
			persist("net.ipv4.ip_local_port_range='32768 60999'"))
	}},
}

// persist is a command that sets a sysctl, with how it stays.
func persist(setting string) string {
	return "sudo sysctl -w " + setting + " (and in /etc/sysctl.d/90-mcast.conf, to keep it)"
}

// blocked reports whether a sandbox keeps a call from this process.
func (k *Kernel) blocked(name string) bool {
	return k.Filtered && slices.ContainsFunc(k.Blocked, func(b Blocked) bool { return b.Name == name })
}

// refusesUnix reports whether something refuses sockets between processes of this host: every kernel has them.
func (k *Kernel) refusesUnix() bool {
	return slices.ContainsFunc(k.Blocked, func(b Blocked) bool { return b.Name == UnixSockets })
}

// callsBlocked finds calls that a sandbox refuses.
func callsBlocked(f *Facts) []Finding {
	var names []string
	severity, slow := Note, "datagrams cross the kernel one by one, which takes several times the CPU time"
	for _, b := range f.Kernel.Blocked {
		names = append(names, b.Name+" ("+b.Error+")")
		switch b.Name {
		case "memfd_create", UnixSockets:
			severity = max(severity, Warning)
			slow = "ranks of one host share no memory, and talk over loopback"
		case "sendmmsg", "recvmmsg":
			severity = max(severity, Warning)
		}
	}
	why := map[Severity]string{
		Warning: slow,
		Note:    "the library does without, at some cost",
	}[severity]
	return one((f.Kernel.Filtered || f.Kernel.refusesUnix()) && len(names) > 0, severity, "seccomp",
		"a filter of system calls refuses "+strings.Join(names, ", "), why,
		"let these calls pass: docker run --security-opt seccomp=PROFILE.json; in Kubernetes"+
			" securityContext.seccompProfile; an old libseccomp or runtime refuses calls that it does not know")
}

// kernelLacks lists what the running kernel, or a sandbox, does not have.
func kernelLacks(f *Facts) []Finding {
	k := f.Kernel
	if k.Release == "" {
		return nil
	}
	severity, lacks := Warning, []string(nil)
	for _, has := range []struct {
		it    bool
		name  string
		since string
		s     Severity
	}{
		{k.MulticastAll, "IP_MULTICAST_ALL", "2.6.31", Fault},
		{k.Batch || k.blocked("sendmmsg") || k.blocked("recvmmsg"), "sendmmsg and recvmmsg", "3.0", Warning},
		{k.Memfd || k.blocked("memfd_create"), "memfd_create", "3.17", Fault},
		{k.Zerocopy, "SO_ZEROCOPY", "4.14", Warning},
		{k.Segment, "UDP_SEGMENT", "4.18", Warning},
		{k.Merge, "UDP_GRO", "5.0", Warning},
		{k.TCPWindow, "the peer's window in TCP_INFO", "5.4", Warning},
	} {
		if !has.it {
			lacks = append(lacks, fmt.Sprintf("%s (Linux has it since %s)", has.name, has.since))
			severity = max(severity, has.s)
		}
	}
	why := "datagrams cross the kernel one by one, and paths that carry nothing are found later"
	if severity == Fault {
		why = "ranks cannot open their sockets or shared memory without"
	}
	return one(len(lacks) > 0, severity, "kernel "+k.Release, "it lacks "+strings.Join(lacks, ", "), why,
		"a newer kernel; in a sandbox (gVisor, seccomp) let these calls pass")
}

// hostRules are about cores, memory and limits.
var hostRules = []rule{
	{"cpu-quota", cpuQuota},
	{"one-cpu", func(f *Facts) []Finding {
		return one(f.CPU.Allowed == 1 && f.CPU.Count > 1, Warning, "CPU affinity",
			fmt.Sprintf("this process may run on 1 of %d CPUs", f.CPU.Count),
			"receiving, sending and compute take turns",
			"start it without taskset or --cpuset-cpus; of a process: taskset -pc 0-"+strconv.Itoa(
				f.CPU.Count-1,
			)+" PID")
	}},
	{"gomaxprocs", func(f *Facts) []Finding {
		n, err := strconv.Atoi(f.Settings.Set["GOMAXPROCS"])
		most := f.CPU.usable()
		return one(err == nil && n > most && most > 0, Warning, "GOMAXPROCS",
			fmt.Sprintf("GOMAXPROCS=%d, and there are %d CPUs to be used", n, most),
			"threads beyond that only take turns, and use a quota up early", "unset GOMAXPROCS")
	}},
	{"simd", func(f *Facts) []Finding {
		return one(f.CPU.Arch == "amd64" && !f.CPU.AVX2, Note, "CPU", "it has no AVX2",
			"sums of reductions are several times slower", "in a virtual machine pass the host's CPU through")
	}},
	{"simd-off", func(f *Facts) []Finding {
		level := f.Settings.Set["MCAST_SIMD"]
		return one(f.CPU.AVX2 && level == "generic", Warning, "MCAST_SIMD",
			"MCAST_SIMD=generic, and the CPU has AVX2", "sums of reductions are several times slower",
			"unset MCAST_SIMD")
	}},
	{"memory", littleMemory},
	{"dev-shm", func(f *Facts) []Finding {
		return one(f.Memory.SharedTotal <= 64*mebibyte, Warning, "/dev/shm",
			"it holds "+ByteCount(max(0, f.Memory.SharedTotal)),
			"this library does without, torch's DataLoader and NCCL between GPUs of a host do not",
			"docker run --shm-size=8g; in Kubernetes an emptyDir of medium Memory at /dev/shm")
	}},
	{"locked-memory", func(f *Facts) []Finding {
		return one(len(f.Devices.RDMA) > 0 && f.Limits.Locked >= 0 && f.Limits.Locked < 1<<30, Warning, "ulimit -l",
			"this process may lock "+ByteCount(f.Limits.Locked),
			"NCCL's transport over RDMA locks its buffers, and fails without",
			"ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity of systemd")
	}},
	{"few-threads", func(f *Facts) []Finding {
		return one(f.Limits.few(), Fault, f.Limits.ThreadsBy,
			fmt.Sprintf("%d processes and threads are allowed, and %d are there", f.Limits.Threads, f.Limits.Running),
			"where no thread can be had, Go ends the whole program: pthread_create failed, SIGABRT",
			"more of them: docker run --pids-limit=-1; podPidsLimit of the kubelet; TasksMax=infinity of systemd; ulimit -u")
	}},
	{"open-files", func(f *Facts) []Finding {
		return one(f.Limits.Files > 0 && f.Limits.Files < 4096, Warning, "ulimit -Hn",
			fmt.Sprintf("a process may open %d files", f.Limits.Files),
			"a rank has a connection to each other rank, and each group its own",
			"LimitNOFILE=65536 of systemd; docker run --ulimit nofile=65536:65536")
	}},
}

// few reports whether threads may run out.
func (l *Limits) few() bool {
	return hoststat.Threads{Most: l.Threads, Running: l.Running, By: l.ThreadsBy}.Few()
}

// usable returns on how many CPUs this process can run at once; 0: not known.
func (c *CPU) usable() int {
	most := cmp.Or(c.Allowed, c.Count)
	if c.Quota > 0 {
		most = min(most, int(math.Ceil(c.Quota)))
	}
	return most
}

// cpuQuota finds a bound on the CPU time of this process's control group.
func cpuQuota(f *Facts) []Finding {
	c := f.CPU
	cpus := cmp.Or(c.Allowed, c.Count)
	if c.Quota <= 0 || c.Quota >= float64(cpus) {
		return nil
	}
	what := fmt.Sprintf("control group %s allows %.3g CPUs of %d", c.QuotaBy, c.Quota, cpus)
	stopped := 0
	if c.Periods > 0 {
		if stopped = 100 * c.Throttled / c.Periods; stopped > 0 {
			what += fmt.Sprintf("; it was used up in %d %% of its periods", stopped)
		}
	}
	severity := Note
	const enough, often = 2, 5
	if c.Quota < enough || stopped >= often {
		severity = Warning
	}
	return one(true, severity, "CPU quota", what,
		"a process that has used it up stands still for up to 100 ms, and all other ranks with it",
		"raise it (docker run --cpus, limits.cpu of Kubernetes, CPUQuota= of systemd), or bind CPUs"+
			" instead: docker run --cpuset-cpus, Kubernetes' static CPU manager")
}

// littleMemory finds too little for the windows of a few groups.
func littleMemory(f *Facts) []Finding {
	left, by := f.Memory.Left()
	severity := Warning
	if left < 64*mebibyte {
		severity = Fault
	}
	return one(by != "" && left < 256*mebibyte, severity, "memory", fmt.Sprintf("%s leaves %s", by, ByteCount(left)),
		"windows, shared memory of ranks of one host and socket buffers are counted there; beyond it the"+
			" kernel ends a process",
		"raise the limit (docker run --memory, limits.memory of Kubernetes), or end the processes that fill it")
}
