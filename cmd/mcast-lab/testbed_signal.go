package main

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// testbedSignalCommand is the command line of `mcast-lab testbed fault signal`.
type testbedSignalCommand struct {
	testbedName
	Place  string `arg:"" help:"h2 or n0: host 2 or the host of switch 0; also an index or an address."`
	Signal string `arg:"" help:"STOP, CONT, TERM, KILL or another, by name."`
}

// Run sends it. That nobody runs there is an error: a fault that does nothing shows nothing.
func (c *testbedSignalCommand) Run() error {
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(c.Signal), "SIG"))
	if sig == 0 {
		return config.Mistakef("%q is no signal: want STOP, CONT, TERM, KILL or another, by name", c.Signal)
	}
	tb, namespace, err := openPlace(c.Name, c.Place)
	if err != nil {
		return err
	}
	n, err := tb.Signal(namespace, sig)
	if err != nil {
		return err
	}
	return nothingRuns(n, namespace)
}
