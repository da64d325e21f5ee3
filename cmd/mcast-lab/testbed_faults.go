package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// testbedFaultsCommand is the command line of `mcast-lab testbed faults`.
type testbedFaultsCommand struct {
	Only   cli.Names     `placeholder:"ID,..." help:"Rows, or patterns such as udp/* or */late-*. Default: all."`
	Quick  bool          `help:"Only rows that are tried with every change."`
	List   bool          `help:"Show the rows and try none."`
	Repeat int           `default:"1" placeholder:"N" help:"How often to try each. Default: ${default}."`
	Slack  time.Duration `default:"0s" placeholder:"time" help:"What a busy machine may add to a bound. Default: ${default}."`
	JSON   bool          `name:"json" help:"Print one JSON object a line instead of a table."`
	Out    string        `type:"path" placeholder:"FILE" help:"Write the JSON objects here, beside the table."`
}

// Run tries rows of the catalogue.
func (c *testbedFaultsCommand) Run() (err error) {
	if c.Repeat < 1 {
		return config.Mistakef("--repeat=%d is not allowed: want at least 1", c.Repeat)
	}
	if c.Slack < 0 {
		return config.Mistakef("--slack=%v is not allowed: want at least 0s", c.Slack)
	}
	o := faults.Options{Only: c.Only, Quick: c.Quick, Repeat: c.Repeat, Slack: c.Slack, Text: os.Stdout}
	if c.JSON {
		o.Text, o.JSON = nil, os.Stdout
	}
	if c.List {
		return listFaults(os.Stdout, &o)
	}
	if _, err := o.Select(); err != nil {
		return err
	}
	if o.Programs, err = programs.Find(); err != nil {
		return err
	}
	if err := anybody(); err != nil {
		return err
	}
	if c.Out != "" {
		file, err := os.Create(c.Out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		o.JSON = file
		if c.JSON {
			o.JSON = io.MultiWriter(os.Stdout, file)
		}
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	_, err = faults.Run(ctx, o)
	return err
}

// listFaults shows the rows that would be tried.
func listFaults(w io.Writer, o *faults.Options) error {
	rows, err := o.Select()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%v\t%s\n", r.ID, r.Ends, r.Fault)
	}
	return t.Flush()
}

// testbedFaultWorkerCommand is the command line of a rank of the catalogue's jobs.
type testbedFaultWorkerCommand struct {
	Plan string `arg:"" help:"What to do, as JSON."`
}

// Run is the rank.
func (c *testbedFaultWorkerCommand) Run() error {
	var plan worker.Plan
	if err := json.Unmarshal([]byte(c.Plan), &plan); err != nil {
		return fmt.Errorf("the plan of a rank: %w", err)
	}
	return worker.Run(context.Background(), plan, os.Stdout)
}
