package main

import (
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/diagnosis"
)

// testbedRefuseCommand is the command line of `mcast-lab testbed refuse`.
type testbedRefuseCommand struct {
	Calls   cli.Names `required:"" placeholder:"NAME,..." help:"System calls, such as sendmmsg,recvmmsg."`
	Errno   string    `default:"ENOSYS" placeholder:"NAME" help:"The error that they return: ENOSYS, as in an older kernel, or EPERM, as in a sandbox. Default: ${default}."`
	Command []string  `arg:"" passthrough:"" help:"What to run."`
}

// Run becomes the command.
func (c *testbedRefuseCommand) Run() error {
	errno, known := map[string]unix.Errno{"ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM}[c.Errno]
	if !known {
		return config.Mistakef("--errno=%s is not allowed: want ENOSYS or EPERM", c.Errno)
	}
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	return diagnosis.Refuse(c.Calls, errno, command)
}
