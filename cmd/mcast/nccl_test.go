package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
	"github.com/torch-mcast/torch-mcast/internal/nccl/nccltest"
)

var wellSet = []string{"NCCL_NET_PLUGIN=mcast", "NCCL_NET=mcast", "NCCL_COLLNET_ENABLE=1", "MCAST_TUNER_ALLGATHER=4M"}

// The command as people and programs see it: its status says whether NCCL will use the plugin.
func TestNCCLCheck(t *testing.T) {
	dir, host := t.TempDir(), nccltest.NewHost(t)
	nccl := nccltest.NCCL(t, dir, 23203, "ncclNetPlugin_v8", "ncclCollNetPlugin_v8", "ncclTunerPlugin_v6",
		"ncclProfiler_v5", "ncclProfiler_v7")
	nccltest.Plugin{
		Name: "mcast", Devices: []string{"eth0"}, CollNet: 1, Tables: []string{"ncclTunerPlugin_v6", "ncclProfiler_v5"},
	}.Library(t, filepath.Join(dir, "libnccl-net-mcast.so"))
	vars := append([]string{"HOME=" + host.Root, "LD_LIBRARY_PATH=" + dir}, wellSet...)

	cmd, out, stderr := mcast(t, vars, "nccl", "check", "--nccl="+nccl, "--root="+host.Root)
	require.NoError(t, cmd.Run(), "%s%s", out, stderr)
	require.Contains(t, out.String(), "they meet on net v8, CollNet v8, tuner v6, profiler v5\n")
	require.Contains(t, out.String(), "NCCL will use it: ")

	cmd, out, _ = mcast(t, vars, "nccl", "check", "--nccl="+nccl, "--root="+host.Root, "--nodes=1", "--json")
	var status *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &status)
	require.Equal(t, 1, status.ExitCode())
	var report check.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	require.False(t, report.Used)
	require.Contains(t, report.Reason, "one node")

	cmd, out, stderr = mcast(t, nil, "nccl", "check", "--nodes=0")
	require.Error(t, cmd.Run())
	require.Empty(t, out.String())
	require.Contains(t, stderr.String(), "--nodes=0 --gpus=0 are not allowed")
}

func TestNCCLTopology(t *testing.T) {
	host := nccltest.NewHost(t)
	cmd, _, stderr := mcast(t, nil, "nccl", "topology", "--root="+host.Root)
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "name them, as in --gpu=")

	host.GPU("pci0000:15/0000:15:00.0", 0)
	host.GPU("pci0000:95/0000:95:00.0", 1)
	plugin := nccltest.Plugin{Name: "mcast", Devices: []string{"eth0", "eth0.1"}}.Library(t,
		filepath.Join(t.TempDir(), "plugin.so"))
	cmd, out, stderr := mcast(t, nil, "nccl", "topology", "--root="+host.Root, "--library="+plugin)
	require.NoError(t, cmd.Run(), stderr)
	require.Regexp(t,
		`(?s)<cpu numaid="0"[^>]*>.*0000:15:00.0.*<net name="eth0">.*<cpu numaid="1"[^>]*>.*0000:95:00.0.*<net name="eth0.1">`, out.String())

	cmd, out, stderr = mcast(t, nil, "nccl", "topology", "--gpu=0000:07:00.0=1", "--nets=a,b")
	require.NoError(t, cmd.Run(), stderr)
	require.Regexp(t, `(?s)<cpu numaid="1"[^>]*>.*0000:07:00.0.*<net name="a">`, out.String())

	cmd, _, stderr = mcast(t, nil, "nccl", "topology", "--root="+host.Root, "--nets=a")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "1 network devices are too few for 2 GPUs")
}
