package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Each fault is set, shown and healed; and the error about a wrong argument names the allowed ones.
func TestTestbedFaults(t *testing.T) {
	name := fmt.Sprintf("fault%d", os.Getpid())
	run := func(args ...string) (string, error) {
		cmd, stdout, stderr := lab(t, nil, append([]string{"testbed"}, args...)...)
		err := cmd.Run()
		return stdout.String() + stderr.String(), err
	}
	if os.Geteuid() != 0 {
		t.Skip("a testbed needs root")
	}
	_, err := run("up", "--name", name, "--hosts", "2", "--rate", "1gbit")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, testbed.Down(name)) })
	for _, c := range []struct{ args, says string }{
		{"loss n0 1 --peer h1 --protocol udp --above 1500 --at in",
			"n0: its link loses 1 --at in --protocol udp --above 1500 --peer 10.77.0.2"},
		{"link 0 down", "h0: its link is down"},
		{"interface h1 down", "h1: its eth0 is down"},
		{"mtu h1 1500", "h1: the switch's port has an MTU of 1500"},
		{"rate all 100mbit", "h1: its link has a rate of 100mbit"},
		{"igmp h1 aged", "h1: the switch has forgotten its groups"},
	} {
		out, err := run(append(append([]string{"fault"}, strings.Fields(c.args)...), "--name", name)...)
		require.NoError(t, err, out)
		out, err = run("status", "--name", name)
		require.NoError(t, err, out)
		require.Contains(t, out, c.says)
	}
	out, err := run("fault", "delay", "h0", "5ms", "--for", "10ms", "--name", name)
	require.NoError(t, err, out)
	out, err = run("fault", "heal", "--name", name)
	require.NoError(t, err, out)
	out, err = run("status", "--name", name)
	require.NoError(t, err, out)
	require.NotContains(t, out, "h0")
	require.NotContains(t, out, "h1")
	for _, c := range []struct{ args, says string }{
		{"loss h9 1", `"h9" is no host of testbed ` + name + ": want an index from 0 to 1"},
		{"loss h0 1 --peer x", `--peer: "x" is no host`},
		{"loss h0 1 --at up", `"up": want in, out, firewall`},
		{"mtu h0 10", "want 68 to 9000"},
		{"rate h0 fast", `"fast" is no rate: want one such as 500mbit`},
		{"rate h0 unlimited", "unlimited is not allowed here"},
		{"freeze h0 1s", "nothing runs in"},
		{"freeze h0 0s", "0s is not allowed: want a time"},
		{"descriptors h0 many", `"many" is not allowed: want a number`},
		{"flap h0 --times 0", "want at least once"},
		{"delay h0 1h", "a delay of 1h0m0s: want more than 0s, up to 10s"},
		{"igmp h0 gone", `must be one of "aged","asked"`},
	} {
		out, err := run(append(append([]string{"fault"}, strings.Fields(c.args)...), "--name", name)...)
		require.Error(t, err, c.args)
		require.Contains(t, out, c.says)
	}
}
