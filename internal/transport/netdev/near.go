package netdev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Classes of PCI functions, in sysfs's spelling.
const (
	classGPU    = "0x03"
	classBridge = "0x06"
	classNIC    = "0x02"
	vendorGPU   = "0x10de"
)

// NearGPUs returns a PCI function near each GPU of this host, by its real path in sysfs, in the order of the
// GPUs' bus addresses: one that NCCL may take for a network device, so neither a GPU nor a bridge. It is
// empty if there is a GPU without one.
func NearGPUs() []string { return nearGPUs("/sys") }

// function is one of a PCI device.
type function struct {
	path string // real path in sysfs
	numa string
	nic  bool
}

func nearGPUs(sysfs string) (near []string) {
	var gpus, others []function
	all, _ := filepath.Glob(filepath.Join(sysfs, "bus/pci/devices/*")) // in order; no PCI: none
	for _, at := range all {
		path, err := filepath.EvalSymlinks(at)
		if err != nil {
			continue
		}
		class, f := attribute(at, "class"), function{path: path, numa: attribute(at, "numa_node")}
		switch {
		case strings.HasPrefix(class, classGPU):
			if attribute(at, "vendor") == vendorGPU {
				gpus = append(gpus, f)
			}
		case class != "" && !strings.HasPrefix(class, classBridge):
			f.nic = strings.HasPrefix(class, classNIC)
			others = append(others, f)
		}
	}
	for _, gpu := range gpus {
		others := slices.DeleteFunc(slices.Clone(others), func(f function) bool { return f.numa != gpu.numa })
		if len(others) == 0 {
			return nil
		}
		near = append(near, slices.MaxFunc(others, func(a, b function) int { return gpu.shared(a) - gpu.shared(b) }).path)
	}
	return near
}

// shared is how many elements of their paths two functions have in common, twice, and one more for a NIC.
func (f function) shared(other function) int {
	a, b := strings.Split(f.path, "/"), strings.Split(other.path, "/")
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	n *= 2
	if other.nic {
		n++
	}
	return n
}

func attribute(device, name string) string {
	text, _ := os.ReadFile(filepath.Join(device, name)) // "": it has none
	return strings.TrimSpace(string(text))
}
