package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNetOverVerbs runs cases of the conformance harness on the built library with RDMA devices, which the guest with soft-RoCE
// has. make build and scripts/rdma-test make both.
func TestNetOverVerbs(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	// Not all: net.leak alone takes the emulator two minutes.
	for _, name := range []string{"net.bytes", "net.memory-nested", "net.peer-lost"} {
		c := exec.CommandContext(t.Context(), filepath.Join(root, "conformance/build/nccl-net-conformance"), "--plugin", filepath.Join(root, "lib/libnccl-net-mcast.so"),
			"--abi", "newest", "--case", name, "--strict", "--verbose")
		c.Env = append(os.Environ(), "MCAST_NET_FABRIC=verbs", "MCAST_IFACE=h1", "MCAST_TIMEOUT=5s")
		said, err := c.CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Contains(t, string(said), "1 passed", "%s", said)
		require.Contains(t, string(said), "over verbs", "%s", said)
	}
}
