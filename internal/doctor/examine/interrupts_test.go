package examine

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

func TestHardware(t *testing.T) {
	e := examination{Facts: doctor.Facts{Links: []doctor.Link{
		{
			Name:     "lo",
			Kind:     "device",
			Loopback: true,
		},
		{Name: "eth0", Kind: "device"},
		{Name: "v0", Kind: "veth"},
		{
			Name:  "bond0",
			Kind:  "bond",
			Below: []string{"eth0"},
		},
		{Name: "vlan7", Kind: "vlan", Below: []string{"bond0"}},
		{
			Name:  "br0",
			Kind:  "bridge",
			Below: []string{"v0", "gone"},
		},
		{Name: "odd", Kind: "vlan", Below: []string{"odd"}},
	}}}
	for name, want := range map[string]bool{"lo": false, "eth0": true, "v0": false, "bond0": true, "vlan7": true,
		"br0": false, "odd": false} {
		assert.Equal(t, want, e.hardware(e.Link(name), 0), name)
	}
}

func TestInterrupts(t *testing.T) {
	const function = "sys/bus/pci/devices/0000:3b:00.0/msi_irqs/"
	e := examination{root: fstest.MapFS{
		function + "40": {},
		function + "41": {},
		function + "x":  {},
		"proc/irq/40/smp_affinity_list": {
			Data: []byte("0-31\n"),
		},
		"proc/irq/40/effective_affinity_list": {Data: []byte("3\n")},
		"proc/irq/41/smp_affinity_list":       {Data: []byte("0-31\n")},
	}}
	assert.Equal(t, []doctor.IRQ{{Number: 40, CPUs: "3"}, {Number: 41, CPUs: "0-31"}}, e.irqsOf("eth0", "0000:3b:00.0"))
	assert.Empty(t, e.irqsOf("eth0", "virtio0"))
}

// TestInterruptsByName has those of a device that is on no PCI bus, as the kernel names them.
func TestInterruptsByName(t *testing.T) {
	e := examination{root: fstest.MapFS{
		"proc/interrupts": {Data: []byte("      CPU0  CPU1\n" +
			" 24:  1  0  PCI-MSI 5-edge  eth0-rx-0\n 25:  1  0  PCI-MSI 6-edge  eth0-tx-0\n" +
			" 26:  1  0  PCI-MSI 7-edge  eth01-rx-0\n" +
			" 27:  1  0  PCI-MSIX-0000:3b:00.0 1-edge  mlx5_comp0@pci:0000:3b:00.0\nNMI: 0 0 x eth0\n")},
		"proc/irq/24/smp_affinity_list": {Data: []byte("0\n")},
		"proc/irq/25/smp_affinity_list": {Data: []byte("0-1\n")},
		"proc/irq/27/smp_affinity_list": {Data: []byte("1\n")},
	}}
	assert.Equal(t, []doctor.IRQ{{Number: 24, CPUs: "0"}, {Number: 25, CPUs: "0-1"}}, e.irqsOf("eth0", ""))
	assert.Equal(t, []doctor.IRQ{{Number: 27, CPUs: "1"}}, e.irqsOf("ens1", "0000:3b:00.0"))
	assert.Empty(t, e.irqsOf("ens1", ""))
}

func TestNearTheCard(t *testing.T) {
	const device = "sys/class/net/eth0/device/"
	root := fstest.MapFS{device + "numa_node": {Data: []byte("1\n")}, device + "local_cpulist": {Data: []byte("2-3\n")}}
	e := examination{root: root}
	assert.Equal(t, "2-3", e.near("eth0", ""))
	assert.Empty(t, e.near("eth1", "0000:3b:00.0"))
	root[device+"numa_node"] = &fstest.MapFile{Data: []byte("-1\n")}
	assert.Empty(t, e.near("eth0", ""), "there is one node")
}
