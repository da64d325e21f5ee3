package machine

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The elements of NCCL's topology file:
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-topo-file.
type (
	xmlSystem struct {
		XMLName xml.Name  `xml:"system"`
		Version int       `xml:"version,attr"`
		CPUs    []*xmlCPU `xml:"cpu"`
	}
	xmlCPU struct {
		NUMA     int       `xml:"numaid,attr"`
		Affinity string    `xml:"affinity,attr"` // a mask, as in sysfs
		Arch     string    `xml:"arch,attr"`
		Vendor   string    `xml:"vendor,attr,omitempty"`
		Family   string    `xml:"familyid,attr,omitempty"`
		Model    string    `xml:"modelid,attr,omitempty"`
		PCI      []*xmlPCI `xml:"pci"`
	}
	xmlPCI struct {
		BusID           string    `xml:"busid,attr"`
		Class           string    `xml:"class,attr,omitempty"`
		Vendor          string    `xml:"vendor,attr,omitempty"`
		Device          string    `xml:"device,attr,omitempty"`
		SubsystemVendor string    `xml:"subsystem_vendor,attr,omitempty"`
		SubsystemDevice string    `xml:"subsystem_device,attr,omitempty"`
		Speed           string    `xml:"link_speed,attr,omitempty"`
		Width           string    `xml:"link_width,attr,omitempty"`
		PCI             []*xmlPCI `xml:"pci"`
		Net             *xmlNet   `xml:"nic>net"`
	}
	xmlNet struct {
		Name string `xml:"name,attr"`
	}
)

// WriteTopology writes an NCCL_TOPO_FILE in which each GPU has a network device of its own beside
// it: the first GPU the first of nets, and so on. NCCL needs that to take CollNet with several GPUs
// a node: for Allgather and Reduce-Scatter every GPU must be the one nearest to some device, and a
// device without a PCI address counts as the first CPU's (graph/search.cc, graph/xml.cc of NCCL).
//
// GPU and device get a bridge of their own, which does not exist: then the two are nearer to each
// other than to anything else on the CPU.
//
// Of a GPU its address is enough. CPUs and bridges are told in full: a rank completes those above
// its own GPU alone, and takes one that another rank has completed for a second one.
func (m Machine) WriteTopology(w io.Writer, nets []string) error {
	if len(m.GPUs) == 0 {
		return errors.New("there is no GPU to write a topology for")
	}
	if len(nets) < len(m.GPUs) {
		return fmt.Errorf("%d network devices are too few for %d GPUs: NCCL wants one for each", len(nets), len(m.GPUs))
	}
	system := xmlSystem{Version: 1}
	for i, g := range m.GPUs {
		parent := &m.cpu(&system, g.NUMA).PCI
		for _, id := range g.Bridges {
			parent = &m.bridge(parent, id).PCI
		}
		*parent = append(*parent,
			&xmlPCI{BusID: invented(i, 0), Class: "0x060400", Speed: linkSpeed, Width: linkWidth, PCI: []*xmlPCI{
				{BusID: g.BusID},
				{BusID: invented(i, 1), Class: "0x020000", Speed: linkSpeed, Width: linkWidth, Net: &xmlNet{nets[i]}},
			}})
	}
	if _, err := fmt.Fprintf(w, "<!-- %d GPUs, a network device near each: for NCCL_TOPO_FILE -->\n",
		len(m.GPUs)); err != nil {
		return err
	}
	out := xml.NewEncoder(w)
	out.Indent("", "  ")
	if err := out.Encode(system); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// What NCCL takes for as fast as a PCI link is today: the network behind it is slower.
const (
	linkSpeed = "32.0 GT/s PCIe"
	linkWidth = "16"
)

// invented is the address of a device that there is not, of the ith GPU. No machine has so high a
// domain.
func invented(i, function int) string { return fmt.Sprintf("fffe:%02x:00.%d", i, function) }

// cpu returns the CPU of a NUMA node, as NCCL describes it.
func (m Machine) cpu(of *xmlSystem, numa int) *xmlCPU {
	for _, c := range of.CPUs {
		if c.NUMA == numa {
			return c
		}
	}
	c := &xmlCPU{
		NUMA: numa, Arch: "x86_64",
		Affinity: word(filepath.Join(m.root, "sys/devices/system/node", fmt.Sprintf("node%d", numa)), "cpumap"),
	}
	if runtime.GOARCH == "arm64" {
		c.Arch = "arm64"
	} else {
		about := m.cpuinfo()
		c.Vendor, c.Family, c.Model = about["vendor_id"], about["cpu family"], about["model"]
	}
	of.CPUs = append(of.CPUs, c)
	return c
}

// cpuinfo returns what the kernel says of the first core.
func (m Machine) cpuinfo() map[string]string {
	text, err := os.ReadFile(filepath.Join(m.root, "proc/cpuinfo"))
	if err != nil {
		return nil
	}
	about := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			break
		}
		about[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return about
}

// bridge returns the device of an address among the children of another one, with all attributes
// that NCCL reads.
func (m Machine) bridge(of *[]*xmlPCI, id string) *xmlPCI {
	for _, p := range *of {
		if p.BusID == id {
			return p
		}
	}
	dir := filepath.Join(m.root, pciDevices, id)
	p := &xmlPCI{BusID: id, Class: word(dir, "class"), Vendor: word(dir, "vendor"), Device: word(dir, "device"),
		SubsystemVendor: word(dir, "subsystem_vendor"), SubsystemDevice: word(dir, "subsystem_device"),
		Speed: word(dir, "max_link_speed"), Width: word(dir, "max_link_width")}
	if p.Speed == "" {
		p.Speed = linkSpeed
	}
	if p.Width == "" {
		p.Width = linkWidth
	}
	*of = append(*of, p)
	return p
}

// Sockets is on how many NUMA nodes GPUs hang.
func (m Machine) Sockets() int {
	nodes := map[int]bool{}
	for _, g := range m.GPUs {
		nodes[g.NUMA] = true
	}
	return len(nodes)
}
