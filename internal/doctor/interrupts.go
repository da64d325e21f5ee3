package doctor

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// irqsOf returns the interrupts of an interface: those of its PCI function, or, without one, the interrupts
// that the kernel names after the interface.
func (g *gatherer) irqsOf(name, function string) []IRQ {
	if function != "" {
		if found := g.interrupts(function); len(found) > 0 {
			return found
		}
	}
	var found []IRQ
	for line := range strings.Lines(text(g.root, "proc/interrupts")) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.Atoi(number)
		if err != nil || !namedAfter(strings.Fields(rest), name, function) {
			continue
		}
		for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
			if cpus := text(g.root, path.Join("proc/irq", number, file)); cpus != "" {
				found = append(found, IRQ{n, cpus})
				break
			}
		}
	}
	return found
}

// namedAfter reports whether the words that describe an interrupt name an interface, as eth0-rx-3
// and mlx5_comp3@pci:0000:3b:00.0 do.
func namedAfter(words []string, name, function string) bool {
	return slices.ContainsFunc(words, func(word string) bool {
		rest, is := strings.CutPrefix(word, name)
		return is && (rest == "" || rest[0] == '-' || rest[0] == '.' || rest[0] == ':') ||
			function != "" && strings.HasSuffix(word, "@pci:"+function)
	})
}

// near returns the CPUs that are near an interface's device, as 0-15,32-47; empty where all are, or
// it is not known.
func (g *gatherer) near(name, function string) string {
	for _, folder := range []string{"sys/bus/pci/devices/" + function, "sys/class/net/" + name + "/device"} {
		// Of a machine with one node the kernel says -1.
		if node := text(g.root, folder+"/numa_node"); node == "" || strings.HasPrefix(node, "-") {
			continue
		}
		if cpus := text(g.root, folder+"/local_cpulist"); cpus != "" {
			return cpus
		}
	}
	return ""
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
