package examine

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// irqsOf returns the interrupts of an interface: those of its PCI function, or, without one, the interrupts
// that the kernel names after the interface.
func (e *examination) irqsOf(name, function string) (found []doctor.IRQ) {
	if function != "" {
		numbers, _ := fs.Glob(e.root, "sys/bus/pci/devices/"+function+"/msi_irqs/*") // none is none
		for _, at := range numbers {
			found = append(found, e.irq(path.Base(at))...)
		}
	}
	if len(found) > 0 {
		return found
	}
	for line := range strings.Lines(text(e.root, "proc/interrupts")) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		if namedAfter(strings.Fields(rest), name, function) {
			found = append(found, e.irq(number)...)
		}
	}
	return found
}

// irq returns an interrupt and the CPUs that it goes to, or none if either is not known.
func (e *examination) irq(number string) []doctor.IRQ {
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil
	}
	for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
		if cpus := text(e.root, path.Join("proc/irq", number, file)); cpus != "" {
			return []doctor.IRQ{{Number: n, CPUs: cpus}}
		}
	}
	return nil
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
func (e *examination) near(name, function string) string {
	for _, folder := range []string{"sys/bus/pci/devices/" + function, "sys/class/net/" + name + "/device"} {
		// Of a machine with one node the kernel says -1.
		if node := text(e.root, folder+"/numa_node"); node == "" || strings.HasPrefix(node, "-") {
			continue
		}
		if cpus := text(e.root, folder+"/local_cpulist"); cpus != "" {
			return cpus
		}
	}
	return ""
}
