package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/rootless"
)

// testbedWithCommand is the command line of `mcast-lab testbed with`.
type testbedWithCommand struct {
	testbedUpFlags
	Command []string `arg:"" optional:"" passthrough:"" help:"What to run while the testbed is up, after --; it may use 'mcast-lab testbed run' and the like. Default: a shell to type at."`
}

// endTime is what a command has to end, once it was asked to.
const endTime = 10 * time.Second

// Run builds the testbed, runs the command, and takes the testbed down, also after an error. It ends
// with the command's status.
func (c *testbedWithCommand) Run() error {
	if err := c.spec().Check(); err != nil {
		return err
	}
	if err := anybody(); err != nil {
		return err
	}
	if _, err := testbed.Open(c.Name); err == nil {
		return config.Mistakef("testbed %s is up already, and this would take it down in the end: say --name for another",
			c.Name)
	}
	if err := programs.Lead(); err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	tb, err := c.up(ctx)
	if err != nil {
		return err
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		c.Command = []string{"sh"}
	}
	cmd := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, endTime
	ran := cmd.Run()
	if err := tb.Down(); err != nil {
		return errors.Join(ran, err)
	}
	if cmd.ProcessState == nil {
		return ran
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return exitAs(rootless.Status(cmd.ProcessState))
}

// anybody lets an ordinary user run a command that builds testbeds of its own: where there is no
// root it runs this program again in namespaces where there is, and ends with it.
func anybody() error {
	if testbed.NeedRoot() == nil {
		return nil
	}
	status, err := rootless.Again("testbed", "inside")
	if err != nil {
		return err
	}
	os.Exit(status)
	return nil
}

// testbedInsideCommand is what anybody starts.
type testbedInsideCommand struct {
	Args []string `arg:"" passthrough:"" help:"The command line as it was."`
}

// Run becomes the command that it stands before.
func (c *testbedInsideCommand) Run() error {
	if err := rootless.Inside(); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", append(os.Args[:1:1], c.Args...), os.Environ())
}

// exitAs ends this program with the status of a command that has said all there is to say.
func exitAs(status int) error {
	if status != 0 {
		os.Exit(status)
	}
	return nil
}
