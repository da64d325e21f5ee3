//go:build links

package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestDoctorOfSeveralHosts measures the paths between two, which are this one.
func TestDoctorOfSeveralHosts(t *testing.T) {
	shell := hereIsAnywhere(t)
	systest.Undisturbed(t, func() string {
		return systest.Wrong(func(r require.TestingT) { severalHosts(t, r, shell) })
	})
}

func severalHosts(tt *testing.T, t require.TestingT, shell string) {
	args := []string{"doctor", "--no-nccl", "--listen=0s", "--shell=" + shell}
	cmd, out,
		stderr := mcast(tt, []string{"MCAST_IFACE=lo", "MCAST_SIMD=generic"}, append(args, "--hosts=a,b", "--json")...)
	err := cmd.Run()
	var report doctor.JobReport
	require.NoError(t, json.Unmarshal(out.Bytes(), &report), "%v %s", err, stderr)
	require.Len(t, report.Hosts, 2)
	require.Len(t, report.Matrix.Pairs, 2, "%s", stderr)
	require.True(t, report.Matrix.Pairs[0].TCP)
	require.Equal(t, []string{"a", "b"}, []string{report.Hosts[0].Host, report.Hosts[1].Host},
		"one name for both would not do")
	require.Equal(t, "lo", report.Hosts[1].Chosen.Name, "the variable went along")
	require.False(t, report.Healthy)
	require.Equal(t, "same-address-on-hosts", report.Findings[0].Name, "it is one host, in truth")
}
