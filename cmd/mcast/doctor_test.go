package main

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// statusOf runs a command and returns its exit status.
func statusOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	if err := cmd.Run(); err != nil {
		var status *exec.ExitError
		require.ErrorAs(t, err, &status)
	}
	return cmd.ProcessState.ExitCode()
}

// The command as people and programs see it: its status says whether there is a fault.
func TestDoctor(t *testing.T) {
	cmd, out, stderr := mcast(t, []string{"MCAST_IFACE=lo"}, "doctor", "--no-nccl", "--listen=0s")
	require.LessOrEqual(t, statusOf(t, cmd), 1, "warnings are a matter of the machine: %s", out)
	require.Empty(t, stderr.String())
	require.Contains(t, out.String(), "lo, as MCAST_IFACE names it: 127.0.0.1")
	require.Contains(t, out.String(), "5 of 5 self tests passed")

	cmd, out, _ = mcast(t, []string{"MCAST_IFACE=none0"}, "doctor", "--listen=0s", "--json")
	require.Equal(t, 2, statusOf(t, cmd))
	var report doctor.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	require.False(t, report.Healthy)
	require.Equal(t, "interface-missing", report.Findings[0].Name)
	require.Contains(t, report.Findings[0].What, "there is no interface none0")
	require.True(t, strings.HasPrefix(report.Findings[0].Remedy, "export MCAST_IFACE="))
}

// TestHostsCount is what counts where a launcher cannot say it, and needs a place to meet elsewhere.
func TestHostsCount(t *testing.T) {
	for _, rank := range []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"} { // of launchers
		t.Setenv(rank, "")
		require.NoError(t, os.Unsetenv(rank)) // Setenv restores it
	}
	d := doctorCommand{HostsCount: 3}
	_, err := d.job()
	require.ErrorContains(t, err, "--hosts-count=3, and no launcher")
	require.ErrorContains(t, err, "want --meet=HOST:PORT")
	t.Setenv("OMPI_COMM_WORLD_RANK", "0")
	t.Setenv("OMPI_COMM_WORLD_SIZE", "6")
	t.Setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
	t.Setenv("MASTER_ADDR", "a")
	t.Setenv("MASTER_PORT", "5000")
	job, err := d.job()
	require.NoError(t, err)
	require.Equal(t, 3, job.Hosts)
	require.Equal(t, "a:5001", job.Meet)
}

// TestOursWithAZone that is another host's name of the link.
func TestOursWithAZone(t *testing.T) {
	own, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range own {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().Is6() || !p.Addr().IsLinkLocalUnicast() {
			continue
		}
		mine, err := ours(netip.AddrPortFrom(p.Addr().WithZone("elsewhere0"), 4000).String())
		require.NoError(t, err)
		require.True(t, mine)
		return
	}
	t.Skip("no interface here has an IPv6 address of its link")
}

// hereIsAnywhere returns a shell that runs commands here, and knows no host named gone.
func hereIsAnywhere(t *testing.T) string {
	t.Helper()
	shell := filepath.Join(t.TempDir(), "shell")
	const script = "#!/bin/sh\n[ $1 != gone ] || { echo no route to $1 >&2; exit 255; }\nexec sh -c \"$2\"\n"
	require.NoError(t, os.WriteFile(shell, []byte(script), 0o700))
	return shell
}

// TestDoctorOfAHostThatIsGone: the others are looked at all the same.
func TestDoctorOfAHostThatIsGone(t *testing.T) {
	cmd, out, _ := mcast(t, []string{"MCAST_IFACE=lo"}, "doctor", "--no-nccl", "--listen=0s", "--shell="+hereIsAnywhere(t),
		"--hosts=gone,a")
	require.Equal(t, 2, statusOf(t, cmd))
	require.Contains(t, out.String(), "fault   gone: it could not be asked: exit status 255: no route to gone\n")
	require.Contains(t, out.String(), "1 host: 1 fault, ")
}
