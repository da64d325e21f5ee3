package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// linkRules are about what makes the chosen interface slow.
var linkRules = []rule{
	onLink("slow-link", func(_ *Facts, l *Link) []Finding {
		return one(l.Hardware && l.Mbps > 0 && l.Mbps < 1000, Warning, l.Name,
			fmt.Sprintf("the link runs at %d Mbit/s", l.Mbps), "the slowest host of a job sets its pace",
			"look at cable, transceiver and switch port: ethtool "+l.Name)
	}),
	onLink("half-duplex", func(_ *Facts, l *Link) []Finding {
		return one(l.Half, Warning, l.Name, "the link runs in half duplex",
			"ranks send and receive at once: packets collide",
			"sudo ethtool -s "+l.Name+" autoneg on, at the switch port as well")
	}),
	onLink("link-errors", func(_ *Facts, l *Link) []Finding {
		const enough, share = 100_000, 10_000
		return one(l.Packets >= enough && l.Lost > l.Packets/share, Warning, l.Name,
			fmt.Sprintf("of %d received packets %d were damaged or found no room in the card", l.Packets, l.Lost),
			"lost chunks come by repair",
			fmt.Sprintf("look at ethtool -S %s; larger rings: sudo ethtool -G %s rx %d", l.Name, l.Name,
				max(l.RingMax, 4096)))
	}),
	onLink("shaped", func(_ *Facts, l *Link) []Finding {
		severity := Warning
		if l.Qdisc == "tbf" {
			severity = Note
		}
		return one(l.Qdisc == "netem" || l.Qdisc == "tbf", severity, l.Name,
			"outgoing packets are limited to a rate, delayed or dropped on purpose ("+l.Qdisc+")",
			"an experiment may have left it there", "sudo tc qdisc del dev "+l.Name+" root")
	}),
	onLink("offloads-off", offloadsOff),
	onLink("one-queue", oneQueue),
	onLink("short-ring", func(_ *Facts, l *Link) []Finding {
		const short = 512
		return one(l.Mbps >= 10000 && l.Ring > 0 && l.Ring <= short && l.RingMax > l.Ring, Note, l.Name,
			fmt.Sprintf("the receive ring has %d descriptors, and could have %d", l.Ring, l.RingMax),
			"bursts of several roots at once are dropped in the card",
			fmt.Sprintf("sudo ethtool -G %s rx %d", l.Name, l.RingMax))
	}),
	onLink("irqs-on-one-cpu", irqsOnOne),
	onLink("far-from-card", farFromCard),
}

// offloadsOff finds what somebody has switched off. Virtual cables have GRO off by themselves.
func offloadsOff(_ *Facts, l *Link) []Finding {
	names := map[string]string{"rx-gro": "gro", "tx-generic-segmentation": "gso", "rx-checksum": "rx"}
	var on []string
	for _, off := range l.Off {
		on = append(on, names[off]+" on")
	}
	return one(len(l.Off) > 0 && l.Hardware, Warning, l.Name, "offloads are switched off: "+strings.Join(l.Off, ", "),
		"the kernel handles each packet by itself, which takes several times the CPU time",
		"sudo ethtool -K "+l.Name+" "+strings.Join(on, " "))
}

// oneQueue finds a card that uses one of its queues.
func oneQueue(f *Facts, l *Link) []Finding {
	severity := Note
	if l.Mbps >= 10000 {
		severity = Warning
	}
	n := min(l.QueuesMax, f.CPU.Count)
	return one(l.Queues == 1 && n > 1 && l.Hardware, severity, l.Name,
		fmt.Sprintf("one receive queue of %d is used", l.QueuesMax), "one CPU receives for all ranks of the host",
		fmt.Sprintf("sudo ethtool -L %s combined %d", l.Name, n))
}

// irqsOnOne finds the interrupts of several queues on one CPU.
func irqsOnOne(f *Facts, l *Link) []Finding {
	if len(l.IRQs) < 3 || f.CPU.Count < 2 { // two may be those of one queue
		return nil
	}
	cpu := l.IRQs[0].CPUs
	for _, irq := range l.IRQs {
		if irq.CPUs != cpu || strings.ContainsAny(irq.CPUs, "-,") {
			return nil
		}
	}
	return one(true, Warning, l.Name, fmt.Sprintf("all its %d interrupts go to CPU %s", len(l.IRQs), cpu),
		"that CPU receives for all ranks of the host, and drops when it cannot follow",
		fmt.Sprintf("sudo systemctl start irqbalance; or, each: echo 1 | sudo tee /proc/irq/%d/smp_affinity_list",
			l.IRQs[1].Number))
}

// farFromCard finds a process that may run only where the card's memory is another socket's.
func farFromCard(f *Facts, l *Link) []Finding {
	near := cpuList(l.Near)
	far := len(near) > 0 && len(f.CPU.Set) > 0 &&
		!slices.ContainsFunc(f.CPU.Set, func(cpu int) bool { return near[cpu] })
	return one(far, Warning, l.Name,
		fmt.Sprintf("the card is near CPUs %s, and this process may run on none of them", l.Near),
		"each packet crosses the link between sockets twice, which GPUs use as well",
		"numactl --physcpubind="+l.Near+" COMMAND; or name the card near the GPUs by MCAST_IFACE")
}

// cpuList reads a list of CPUs such as 0-15,32, and skips parts that it does not understand.
func cpuList(text string) map[int]bool {
	all := make(map[int]bool)
	const most = 1 << 13
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		for cpu := from; err == nil && err2 == nil && cpu <= to && cpu < most; cpu++ {
			all[cpu] = true
		}
	}
	return all
}

// deviceRules are about GPUs, RDMA and NCCL.
var deviceRules = []rule{
	{"gpu-driver", func(f *Facts) []Finding {
		return one(len(f.Devices.GPUs) > 0 && f.Devices.GPUDriver == "", Warning, "GPU",
			fmt.Sprintf("there are %d GPUs (%s), and NVIDIA's kernel module is not loaded", len(f.Devices.GPUs),
				strings.Join(f.Devices.GPUs, " ")),
			"CUDA and NCCL do not work", "sudo modprobe nvidia")
	}},
	{"rdma-hidden", func(f *Facts) []Finding {
		return one(len(f.Devices.RDMA) > 0 && !f.Devices.RDMAUsable, Note, "RDMA",
			fmt.Sprintf("%s cannot be used here: there is no /dev/infiniband", strings.Join(f.Devices.RDMA, " ")),
			"this library needs none; NCCL's own transport goes over TCP then",
			"docker run --device=/dev/infiniband --cap-add=IPC_LOCK")
	}},
	{"nccl-plugin", func(f *Facts) []Finding {
		severity := Note
		if len(f.Devices.GPUs) > 0 {
			severity = Warning
		}
		return one(f.NCCL.Found && !f.NCCL.Used, severity, "NCCL "+f.NCCL.Version,
			"it would not use the plugin: "+f.NCCL.Reason, "it matters only to jobs with the backend nccl",
			"mcast nccl check says what to set")
	}},
}
