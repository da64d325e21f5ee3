// Package machine finds the GPUs of a host without asking a driver: in sysfs and in the files of
// NVIDIA's kernel module. And it writes the file that tells NCCL where the host's network is.
package machine

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Machine is what a host has.
type Machine struct {
	GPUs     []GPU // in the order of their bus addresses, as NVIDIA's tools count them
	NVSwitch bool  // one is visible; a virtual machine may have one that is not

	root string // the folder that stands for /
}

// GPU is one of NVIDIA's.
type GPU struct {
	BusID string // such as 0000:3b:00.0
	NUMA  int    // node of the CPU that it hangs on; -1: not known

	// Bridges are the PCI devices between CPU and GPU that NCCL takes for a level of its tree, from
	// the CPU down; nil where sysfs does not show the GPU.
	Bridges []string
}

// PCI in sysfs.
const (
	pciDevices    = "sys/bus/pci/devices"
	nvidia        = "0x10de"
	classDisplay  = "0x03"
	classNVSwitch = "0x0680"
)

// busID is an address such as 0000:3b:00.0; NVIDIA's module may write a domain of 8 digits.
var busID = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Read looks at a host that has its / at root.
func Read(root string) (Machine, error) {
	m := Machine{root: root}
	devices := filepath.Join(root, pciDevices)
	entries, err := os.ReadDir(devices)
	if err != nil && !os.IsNotExist(err) {
		return m, err
	}
	for _, e := range entries {
		dir := filepath.Join(devices, e.Name())
		if !busID.MatchString(e.Name()) || word(dir, "vendor") != nvidia {
			continue
		}
		switch class := word(dir, "class"); {
		case strings.HasPrefix(class, classNVSwitch):
			m.NVSwitch = true
		case strings.HasPrefix(class, classDisplay):
			m.GPUs = append(m.GPUs, gpuOf(dir, e.Name()))
		}
	}
	m.addDriven(filepath.Join(root, "proc/driver/nvidia/gpus"))
	slices.SortFunc(m.GPUs, func(a, b GPU) int { return strings.Compare(a.BusID, b.BusID) })
	return m, nil
}

// addDriven keeps to the GPUs that NVIDIA's module drives, where it runs, and adds GPUs that sysfs
// does not show, as in some containers.
func (m *Machine) addDriven(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var driven []GPU
	for _, e := range entries {
		id := strings.ToLower(e.Name())
		if !busID.MatchString(id) {
			continue
		}
		id = id[len(id)-len("0000:00:00.0"):]
		if i := slices.IndexFunc(m.GPUs, func(g GPU) bool { return g.BusID == id }); i >= 0 {
			driven = append(driven, m.GPUs[i])
		} else {
			driven = append(driven, GPU{BusID: id, NUMA: -1})
		}
	}
	m.GPUs = driven
}

func gpuOf(dir, id string) GPU {
	g := GPU{BusID: id, NUMA: NUMA(dir)}
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return g
	}
	g.Bridges = []string{}
	// NCCL goes up two levels at a time, since a bridge has a device for either side, and has arrived
	// at the CPU where one of the two is no device.
	for {
		parent := filepath.Dir(path)
		path = filepath.Dir(parent)
		if !busID.MatchString(filepath.Base(parent)) || !busID.MatchString(filepath.Base(path)) {
			return g
		}
		g.Bridges = slices.Insert(g.Bridges, 0, filepath.Base(path))
		g.NUMA = NUMA(path)
	}
}

// NUMA returns the NUMA node of a PCI device's folder in sysfs; -1: not known.
func NUMA(dir string) int {
	node, err := strconv.Atoi(word(dir, "numa_node"))
	if err != nil {
		return -1
	}
	return node
}

// word reads a file of one word.
func word(dir, file string) string {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// ParseGPU reads a GPU as a user gives it: its bus address, and after an equals sign its NUMA node.
func ParseGPU(text string) (GPU, error) {
	id, node, given := strings.Cut(strings.ToLower(text), "=")
	g := GPU{BusID: id, NUMA: -1}
	wrong := config.Mistakef("%q is no GPU: want an address and perhaps a NUMA node, such as 0000:3b:00.0=1", text)
	if !busID.MatchString(id) || len(id) != len("0000:00:00.0") {
		return g, wrong
	}
	if given {
		var err error
		if g.NUMA, err = strconv.Atoi(node); err != nil || g.NUMA < -1 {
			return g, wrong
		}
	}
	return g, nil
}
