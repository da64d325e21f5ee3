package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/experiment"
)

// testbedExperimentCommand is the command line of `mcast-lab testbed experiment`.
type testbedExperimentCommand struct {
	Names   []string        `arg:"" name:"name" help:"Of experiments, or all; 'list' shows them."`
	Hosts   []int           `placeholder:"P,..." help:"Numbers of hosts. Default: the experiment's own."`
	PerHost []int           `placeholder:"K,..." help:"Ranks on each host, for the experiments nodes, cpu and racks: one number for each of --hosts, or one for all. Default: the experiment's own."`
	Rate    []cli.Rate      `placeholder:"rate,..." help:"Rates of hosts' links, such as 200mbit,unlimited. Default: the experiment's own."`
	Bytes   []cli.Bytes     `placeholder:"N,..." help:"Bytes a rank, such as 4M. Default: the experiment's own."`
	Compute []time.Duration `placeholder:"TIME,..." help:"Of a layer between operations, such as 0,15ms, for the experiment explain: with --bytes all troubles are tried with each. Default: each trouble's own."`
	Loss    []cli.Share     `placeholder:"p,..." help:"Shares of frames to lose, for the experiment loss. Default: 0 to 0.1."`
	Peers   cli.Names       `placeholder:"NAME,..." help:"Of mcast, ring, gloo and mpi. Default: all that there are here."`
	Cases   cli.Names       `placeholder:"WORD,..." help:"Faults with such a word in their names, for the experiments doctor and explain. Default: all."`
	Rounds  int             `default:"5" placeholder:"N" help:"How often every peer is measured, by turns; the median counts. 1 is a look at fewer points, in less than three minutes. Default: ${default}."`
	MTU     cli.Bytes       `name:"mtu" default:"9000" placeholder:"bytes" help:"Of all links. Default: ${default}."`
	Burst   cli.Bytes       `placeholder:"size" help:"What an idle link passes at once. Default: what 2 ms take, at least 4 frames."`
	TCP     string          `name:"tcp" placeholder:"NAME" help:"Congestion control of hosts' TCP, such as reno. Default: the machine's."`
	Limit   time.Duration   `placeholder:"time" help:"Of one run of one peer, such as 90s. Default: 3m, of loss 1m."`
	Within  time.Duration   `placeholder:"time" help:"Of all that is asked for, such as 10m: what was measured by then is kept. Default: as long as it takes."`
	Out     string          `type:"path" default:"benchmarks/results/testbed" placeholder:"DIR" help:"Where NAME.ndjson and NAME*.svg go. Default: ${default}."`
	// LockFile: held while any user measures on this machine
	LockFile   string `hidden:"" default:"/tmp/mcast-experiment.lock"`
	Repository string `type:"path" default:"." placeholder:"DIR" help:"Where benchmarks/ and .venv/ are, for the peers gloo and mpi. Default: here."`
}

// Run does them one after another. One that fails does not keep the others from being done.
func (c *testbedExperimentCommand) Run() (err error) {
	if len(c.Names) == 1 && c.Names[0] == "list" {
		for _, e := range experiment.All {
			fmt.Printf("%-10s %s\n", e.Name, e.Title)
		}
		return nil
	}
	chosen, err := experiment.Find(c.Names)
	if err != nil {
		return err
	}
	if c.Rounds < 1 {
		return config.Mistakef("--rounds=%d is not allowed: want at least 1", c.Rounds)
	}
	if c.Within < 0 {
		return config.Mistakef("--within=%v is not allowed: want a time, such as 10m", c.Within)
	}
	found, err := programs.Find()
	if err != nil {
		return err
	}
	unlock, err := experiment.Lock(c.LockFile)
	if err != nil {
		return err
	}
	if testbed.NeedRoot() != nil {
		// The lock was tried here, where the process that holds it can be named; it is taken in the namespaces.
		return errors.Join(unlock(), anybody())
	}
	defer func() { err = errors.Join(err, unlock()) }()
	ctx, stop := cli.UntilSignal()
	defer stop()
	if c.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Within, fmt.Errorf("%w: %v", errWithin, c.Within))
		defer cancel()
	}
	bar := newBar("experiments")
	defer bar.end()
	options := experiment.Options{
		Dir: c.Out, Hosts: c.Hosts, Ranks: c.PerHost, Computes: c.Compute, Peers: c.Peers, Cases: c.Cases, Rounds: c.Rounds,
		MTU: int(c.MTU), Burst: int(c.Burst), TCP: c.TCP,
		Limit: c.Limit, Repository: c.Repository, Programs: found, Text: os.Stdout, Step: bar.say,
	}
	for _, r := range c.Rate {
		options.Rates = append(options.Rates, float64(r))
	}
	for _, n := range c.Bytes {
		options.Bytes = append(options.Bytes, int(n))
	}
	for _, p := range c.Loss {
		options.Losses = append(options.Losses, float64(p))
	}
	var failed error
	for _, e := range chosen {
		failed = errors.Join(failed, e.Run(ctx, options))
		if ctx.Err() != nil {
			return &endedEarly{failed}
		}
	}
	return failed
}

// errWithin is why experiments end that were given so much time.
var errWithin = errors.New("the time that --within allows is over")

// endedEarly is the error of experiments that were ended before they were done.
type endedEarly struct{ error }

func (e *endedEarly) Unwrap() error { return e.error }

// ExitCode is as timeout(1) and shells have it.
func (e *endedEarly) ExitCode() int {
	if errors.Is(e, errWithin) {
		return 124
	}
	return 130
}
