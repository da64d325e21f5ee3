package nccltest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Host is a folder that stands for / of a host.
type Host struct {
	t    *testing.T
	Root string
}

// NewHost makes one that has nothing.
func NewHost(t *testing.T) *Host { return &Host{t, t.TempDir()} }

// PCI adds a device below the others of a path, such as pci0000:15/0000:15:01.0/0000:16:00.0, as
// sysfs shows it.
func (h *Host) PCI(path, vendor, class string, numa int) {
	h.t.Helper()
	dir := filepath.Join(h.Root, "sys/devices", path)
	h.File(filepath.Join("sys/devices", path, "vendor"), vendor+"\n")
	h.File(filepath.Join("sys/devices", path, "class"), class+"\n")
	h.File(filepath.Join("sys/devices", path, "numa_node"), strconv.Itoa(numa)+"\n")
	links := filepath.Join(h.Root, "sys/bus/pci/devices")
	require.NoError(h.t, os.MkdirAll(links, 0o755))
	target, err := filepath.Rel(links, dir)
	require.NoError(h.t, err)
	require.NoError(h.t, os.Symlink(target, filepath.Join(links, filepath.Base(dir))))
}

// GPU adds one of NVIDIA's.
func (h *Host) GPU(path string, numa int) { h.PCI(path, "0x10de", "0x030200", numa) }

// NVSwitch adds one.
func (h *Host) NVSwitch(path string) { h.PCI(path, "0x10de", "0x068000", 0) }

// Driven adds a GPU to the ones that NVIDIA's kernel module drives.
func (h *Host) Driven(busID string) {
	h.File(filepath.Join("proc/driver/nvidia/gpus", busID, "information"), "Model: a GPU\n")
}

// File writes a file.
func (h *Host) File(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.Root, path)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(h.t, os.WriteFile(path, []byte(text), 0o644))
}
