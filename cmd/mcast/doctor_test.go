package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// The command as people and programs see it: its status says whether there is a fault.
func TestDoctor(t *testing.T) {
	cmd, out, stderr := mcast(t, []string{"MCAST_IFACE=lo"}, "doctor", "--no-nccl", "--listen=0s")
	require.NoError(t, cmd.Run(), "%s%s", out, stderr)
	require.Contains(t, out.String(), "lo, as MCAST_IFACE names it: 127.0.0.1")
	require.Contains(t, out.String(), "5 of 5 self tests passed")

	cmd, out, _ = mcast(t, []string{"MCAST_IFACE=none0"}, "doctor", "--listen=0s", "--json")
	var status *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &status)
	require.Equal(t, 1, status.ExitCode())
	var report doctor.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	require.False(t, report.Healthy)
	require.Equal(t, "interface-missing", report.Findings[0].Name)
	require.Contains(t, report.Findings[0].What, "there is no interface none0")
	require.True(t, strings.HasPrefix(report.Findings[0].Remedy, "export MCAST_IFACE="))
}
