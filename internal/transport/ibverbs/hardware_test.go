package ibverbs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHardware: a host's devices as sysfs lists them.
func TestHardware(t *testing.T) {
	before := sysfs
	t.Cleanup(func() { sysfs = before })
	for name, row := range map[string]struct {
		files    []string
		hardware bool
	}{
		"none":                       {nil, false},
		"ConnectX":                   {[]string{"mlx5_0/device"}, true},
		"soft-RoCE on a veth":        {[]string{"rxe0/parent"}, false},
		"soft-RoCE on a NIC":         {[]string{"rxe0/parent", "rxe0/device"}, false},
		"siw":                        {[]string{"siw0/ports"}, false},
		"soft-RoCE and one of HPE's": {[]string{"rxe0/parent", "rxe0/device", "qedr0/device"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			sysfs = t.TempDir()
			for _, f := range row.files {
				require.NoError(t, os.MkdirAll(filepath.Join(sysfs, f), 0o700))
			}
			require.Equal(t, row.hardware, Hardware())
		})
	}
	for link, infiniBand := range map[string]bool{"InfiniBand": true, "Ethernet": false} {
		sysfs = t.TempDir()
		port := filepath.Join(sysfs, "mlx5_0", "ports", "1")
		require.NoError(t, os.MkdirAll(port, 0o700))
		require.NoError(t, os.Mkdir(filepath.Join(sysfs, "mlx5_0", "device"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(port, "link_layer"), []byte(link+"\n"), 0o600))
		require.Equal(t, infiniBand, InfiniBand("mlx5_0"))
		require.Equal(t, !infiniBand, Hardware(), "auto takes none of InfiniBand")
	}
	sysfs = filepath.Join(t.TempDir(), "of-nobody")
	require.False(t, Hardware())
}
