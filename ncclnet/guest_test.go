package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// harness runs a case of the conformance harness on the built library, which has to pass and to say something.
// make build and scripts/rdma-test make both.
func harness(t *testing.T, name, says string, env ...string) {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), filepath.Join(root, "conformance/build/nccl-net-conformance"), "--plugin",
		filepath.Join(root, "lib/libnccl-net-mcast.so"),
		"--abi", "newest", "--case", name, "--strict", "--verbose")
	c.Env = append(os.Environ(), env...)
	said, err := c.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, string(said), "1 passed", "%s", said)
	require.Contains(t, string(said), says, "%s", said)
}

// TestNetOverVerbs runs cases of the conformance harness with RDMA devices, which the guest with soft-RoCE has.
func TestNetOverVerbs(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	// Not all: net.leak alone takes the emulator two minutes.
	for _, name := range []string{"net.bytes", "net.memory-nested", "net.peer-lost"} {
		harness(t, name, "over verbs", "MCAST_NET_FABRIC=verbs", "MCAST_IFACE=h1", "MCAST_TIMEOUT=5s")
	}
}

// TestNetSealed runs cases of the conformance harness over connections that the kernel seals. The guest's kernel can.
func TestNetSealed(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: the kernel may have no TLS")
	}
	for _, name := range []string{"net.bytes", "net.close-send-in-flight", "net.peer-lost"} {
		harness(t, name, "sealed by the kernel (TLS)", "MCAST_SECRET=correct-horse-battery-staple", "MCAST_NET_TLS=require",
			"MCAST_NET_FABRIC=tcp", "MCAST_IFACE=h1", "MCAST_TIMEOUT=5s")
	}
}
