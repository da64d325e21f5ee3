package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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

// TestDoctorOfSeveralHosts has a shell that runs the command here, and knows no host named gone.
func TestDoctorOfSeveralHosts(t *testing.T) {
	shell := filepath.Join(t.TempDir(), "shell")
	const script = "#!/bin/sh\n[ $1 != gone ] || { echo no route to $1 >&2; exit 255; }\nexec sh -c \"$2\"\n"
	require.NoError(t, os.WriteFile(shell, []byte(script), 0o700))
	args := []string{"doctor", "--no-nccl", "--listen=0s", "--shell=" + shell}
	cmd, out, stderr := mcast(t, []string{"MCAST_IFACE=lo", "MCAST_SIMD=generic"}, append(args, "--hosts=a,b", "--json")...)
	err := cmd.Run()
	var report doctor.JobReport
	require.NoError(t, json.Unmarshal(out.Bytes(), &report), "%v %s", err, stderr)
	require.Len(t, report.Hosts, 2)
	require.Equal(t, "lo", report.Hosts[1].Chosen.Name, "the variable went along")
	require.False(t, report.Healthy)
	require.Equal(t, "same-address-on-hosts", report.Findings[0].Name, "it is one host, in truth")

	cmd, out, _ = mcast(t, []string{"MCAST_IFACE=lo"}, append(args, "--hosts=gone,a")...)
	var status *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &status)
	require.Equal(t, 1, status.ExitCode())
	require.Contains(t, out.String(), "fault   gone: it could not be asked: exit status 255: no route to gone\n")
	require.Contains(t, out.String(), "1 host: 1 fault, ")
}
