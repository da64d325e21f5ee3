package machine

import (
	"bytes"
	"encoding/xml"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/nccl/nccltest"
)

// A machine of two sockets: two GPUs behind a PCI switch on each, and an NVSwitch.
func twoSockets(t *testing.T) *nccltest.Host {
	h := nccltest.NewHost(t)
	for _, root := range []struct {
		bus  string
		numa int
	}{{"1", 0}, {"9", 1}} {
		path := "pci0000:" + root.bus + "5/0000:" + root.bus + "5:01.0/0000:" + root.bus + "6:00.0"
		h.PCI(path, "0x1000", "0x060400", root.numa)
		h.GPU(path+"/0000:"+root.bus+"7:00.0/0000:"+root.bus+"8:00.0", root.numa)
		h.GPU(path+"/0000:"+root.bus+"7:01.0/0000:"+root.bus+"9:00.0", root.numa)
	}
	h.NVSwitch("pci0000:15/0000:1f:00.0")
	return h
}

func TestRead(t *testing.T) {
	h := twoSockets(t)
	m, err := Read(h.Root)
	require.NoError(t, err)
	require.Equal(t, Machine{root: h.Root, NVSwitch: true, GPUs: []GPU{
		{"0000:18:00.0", 0, []string{"0000:16:00.0"}}, {"0000:19:00.0", 0, []string{"0000:16:00.0"}},
		{"0000:98:00.0", 1, []string{"0000:96:00.0"}}, {"0000:99:00.0", 1, []string{"0000:96:00.0"}},
	}}, m)
	require.Equal(t, 2, m.Sockets())

	// NCCL does not use a GPU that the driver leaves alone, but uses one that only the driver shows.
	h.Driven("0000:18:00.0")
	h.Driven("00000000:E0:00.0")
	m, err = Read(h.Root)
	require.NoError(t, err)
	require.Equal(t, []GPU{{"0000:18:00.0", 0, []string{"0000:16:00.0"}}, {"0000:e0:00.0", -1, nil}}, m.GPUs)

	none, err := Read(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, none.GPUs)
	require.Zero(t, none.Sockets())
}

// A GPU on a port of the CPU's has no bridge; another vendor's is none, nor is NVIDIA's sound.
func TestReadPlain(t *testing.T) {
	h := nccltest.NewHost(t)
	h.GPU("pci0000:00/0000:00:01.0/0000:01:00.0", -1)
	h.PCI("pci0000:00/0000:00:02.0", "0x8086", "0x030000", 0)
	h.PCI("pci0000:00/0000:00:01.0/0000:01:00.1", "0x10de", "0x040300", 0)
	m, err := Read(h.Root)
	require.NoError(t, err)
	require.Equal(t, Machine{root: h.Root, GPUs: []GPU{{"0000:01:00.0", -1, []string{}}}}, m)
}

func TestParseGPU(t *testing.T) {
	g, err := ParseGPU("0000:3B:00.0=1")
	require.NoError(t, err)
	require.Equal(t, GPU{BusID: "0000:3b:00.0", NUMA: 1}, g)
	g, err = ParseGPU("0000:3b:00.0")
	require.NoError(t, err)
	require.Equal(t, -1, g.NUMA)
	for _, text := range []string{"", "3b:00.0", "0000:3b:00.0=", "0000:3b:00.0=x", "0000:3b:00.0=-2",
		"00000000:3b:00.0"} {
		_, err := ParseGPU(text)
		require.ErrorContains(t, err, "want an address", text)
	}
}

// Each GPU and its device hang on a bridge of their own, below the real bridges.
func TestWriteTopology(t *testing.T) {
	h := twoSockets(t)
	h.File("sys/devices/system/node/node0/cpumap", "0000000f\n")
	h.File("sys/devices/system/node/node1/cpumap", "000000f0\n")
	h.File("proc/cpuinfo",
		"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\nprocessor\t: 1\nmodel\t: 9\n")
	m, err := Read(h.Root)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, m.WriteTopology(&out, []string{"a", "b", "c", "d", "more"}))
	var system xmlSystem
	require.NoError(t, xml.Unmarshal(out.Bytes(), &system))
	require.Len(t, system.CPUs, 2)
	nets := "abcd"
	ids := map[string]bool{}
	for numa, cpu := range system.CPUs {
		require.Equal(t, numa, cpu.NUMA)
		require.Equal(t, []string{"0000000f", "000000f0"}[numa], cpu.Affinity)
		if runtime.GOARCH == "amd64" {
			require.Equal(t, []string{"x86_64", "GenuineIntel", "6", "143"},
				[]string{cpu.Arch, cpu.Vendor, cpu.Family, cpu.Model})
		}
		require.Len(t, cpu.PCI, 1, "one PCI switch a socket")
		require.Equal(t, "0x1000", cpu.PCI[0].Vendor)
		require.Equal(t, "0x060400", cpu.PCI[0].Class)
		require.NotEmpty(t, cpu.PCI[0].Speed)
		require.Len(t, cpu.PCI[0].PCI, 2)
		for i, bridge := range cpu.PCI[0].PCI {
			require.Equal(t, "0x060400", bridge.Class)
			require.Len(t, bridge.PCI, 2)
			require.Equal(t, m.GPUs[2*numa+i].BusID, bridge.PCI[0].BusID)
			require.Nil(t, bridge.PCI[0].Net)
			require.Equal(t, string(nets[2*numa+i]), bridge.PCI[1].Net.Name)
			for _, invented := range []*xmlPCI{bridge, bridge.PCI[1]} {
				require.NotEmpty(t, invented.Speed, "NCCL reads what is missing from sysfs, where it is not")
				require.NotEmpty(t, invented.Width)
				require.False(t, ids[invented.BusID])
				ids[invented.BusID] = true
			}
		}
	}
	require.NotContains(t, out.String(), "\t", "which NCCL's parser does not know for a space")

	require.ErrorContains(t, m.WriteTopology(&out, []string{"eth0"}), "1 network devices are too few for 4 GPUs")
	require.ErrorContains(t, Machine{}.WriteTopology(&out, nil), "no GPU")
}
