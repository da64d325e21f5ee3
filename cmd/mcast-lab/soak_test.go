package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soak runs `mcast-lab sim soak` and returns its output and whether it succeeds.
func soak(t *testing.T, args ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	cmd, out, bad := lab(t, nil, append([]string{"sim", "soak"}, args...)...)
	err := cmd.Run()
	return out.String(), bad.String(), err == nil
}

func TestSimSoakRunsBothProtocols(t *testing.T) {
	out, bad, ok := soak(t, "--seeds", "20")
	require.True(t, ok, out+bad)
	assert.Regexp(t,
		`(?m)^the multicast protocol: 20 seeds, [1-9]\d* operations \(\d+ over all ranks\), .* operations/s, .*hash [0-9a-f]{16}$`, out)
	assert.Regexp(t, `(?m)^the in-network Reduce-Scatter: 20 seeds, [1-9]\d* operations \(\d+ over all ranks\), `, out)
	again, bad, ok := soak(t, "--inc", "--operations", "50", "--verbose")
	require.True(t, ok, again+bad)
	assert.NotContains(t, again, "the multicast protocol")
	assert.Contains(t, again, "seed 1: ")
}

func TestSimSoakReplays(t *testing.T) {
	scenario :=
		`{"Burst":1,"Core":{"Chains":1,"Chunk":1,"Cutoff":200000,"Size":3,"Subgroups":1},"Depth":1,"Net":{"Gbps":1,"Tree":{"Hosts":3}},"Ops":[{"Bytes":300,"Collective":2,"Root":2}]}`
	out, bad, ok := soak(t, "--replay", scenario)
	require.True(t, ok, out+bad)
	assert.Contains(t, out, "3 operations")
	_, bad, ok = soak(t, "--inc", "--replay", scenario)
	assert.False(t, ok)
	assert.Contains(t, bad, "not a scenario of the in-network Reduce-Scatter")
	_, bad, ok = soak(t, "--inc", "--multicast")
	assert.False(t, ok)
	assert.Contains(t, bad, "--multicast and --inc can't be used together")
}
