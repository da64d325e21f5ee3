package netdev

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// functions makes a sysfs with PCI functions: path below the root, class, vendor, NUMA node.
func functions(t *testing.T, all [][4]string) string {
	t.Helper()
	sysfs := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(sysfs, "bus/pci/devices"), 0o755))
	for _, f := range all {
		at := filepath.Join(sysfs, "devices", f[0])
		require.NoError(t, os.MkdirAll(at, 0o755))
		for name, text := range map[string]string{"class": f[1], "vendor": f[2], "numa_node": f[3]} {
			require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(text+"\n"), 0o600))
		}
		require.NoError(t, os.Symlink(at, filepath.Join(sysfs, "bus/pci/devices", filepath.Base(at))))
	}
	return sysfs
}

func TestNearGPUs(t *testing.T) {
	const gpu, nic, disk, bridge = "0x030200", "0x020000", "0x010802", "0x060400"
	require.Empty(t, nearGPUs(functions(t, nil)))
	sysfs := functions(t, [][4]string{
		{"pci0/0000:00:01.0", bridge, "0x8086", "0"},
		{"pci0/0000:00:01.0/0000:07:00.0", gpu, "0x10de", "0"},
		{"pci0/0000:00:01.0/0000:08:00.0", disk, "0x144d", "0"}, // nearer than the NIC
		{"pci0/0000:00:02.0/0000:09:00.0", gpu, "0x10de", "0"},
		{"pci0/0000:00:02.0/0000:0a:00.0", disk, "0x144d", "0"},
		{"pci0/0000:00:02.0/0000:0b:00.0", nic, "0x15b3", "0"}, // as near as the disk
		{"pci1/0000:80:01.0/0000:87:00.0", gpu, "0x10de", "1"},
		{"pci1/0000:80:02.0/0000:88:00.0", disk, "0x144d", "1"}, // on another bridge, but of this socket
		{"pci0/0000:00:1f.0", "0x030000", "0x1a03", "0"},        // a BMC's display
	})
	var got []string
	for _, path := range nearGPUs(sysfs) {
		got = append(got, filepath.Base(path))
	}
	require.Equal(t, []string{"0000:08:00.0", "0000:0b:00.0", "0000:88:00.0"}, got)

	require.Empty(t, nearGPUs(functions(t, [][4]string{
		{"pci0/0000:07:00.0", gpu, "0x10de", "0"}, {"pci0/0000:08:00.0", nic, "0x15b3", "0"},
		{"pci1/0000:87:00.0", gpu, "0x10de", "1"},
	})), "a socket without a place")
}
