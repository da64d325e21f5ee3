package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/explain"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// explainCommand says why a job is slow: docs/how-to/slow-job.md.
type explainCommand struct {
	For   time.Duration `name:"seconds" default:"10s" placeholder:"TIME" help:"For how long to look at the job, 1s or more, such as 5 or 30s; it should do some steps meanwhile. Default: ${default}."`
	Hosts cli.Names     `placeholder:"HOST[:PORT],..." help:"Ask 'mcast metrics --listen :9464' of these hosts, instead of looking at this one: ranks are compared, so name all of a job."`
	Job   bool          `help:"Look at all ranks of the jobs that have one here: that one asks the others over the connections that they have. Nothing is to be started before."`
	JSON  bool          `name:"json" help:"Print a JSON object: findings, and the accounts that they come from."`
	rankFlags
}

// statusFound is the exit status if there is a finding; 0 that there is none, and statusError that nothing was seen.
const statusFound = 1

// Run looks twice and tells.
func (c *explainCommand) Run() error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	report, err := c.explain(ctx)
	if err == nil {
		err = show(os.Stdout, report, c.JSON)
	}
	if err != nil {
		return unableError{err}
	}
	if report.Found() {
		os.Exit(statusFound)
	}
	return nil
}

// look returns what looks for ranks and at their hosts.
func (c *explainCommand) look(ctx context.Context) (func() ([]watch.Rank, []error), error) {
	if len(c.Hosts) > 0 {
		if c.Job {
			return nil, config.Mistakef("--hosts and --job are not allowed together: either asks for ranks of other hosts")
		}
		if c.Directory != "" {
			return nil,
				config.Mistakef("--hosts and --directory or --user are not allowed together: a host's `mcast metrics` has its " +
					"own --directory")
		}
		for _, host := range c.Hosts {
			if _, _, err := net.SplitHostPort(host); err != nil {
				continue // without a port
			}
			if err := cli.CheckAddress("hosts", host); err != nil {
				return nil, err
			}
		}
		remote, err := newRemote()
		if err != nil {
			return nil, err
		}
		return func() ([]watch.Rank, []error) { return remote.Fetch(ctx, c.Hosts) }, nil
	}
	if c.Job {
		return c.ofJobs()
	}
	return c.closely()
}

// ofJobs returns what looks at all ranks of the jobs that were here at the first look.
func (c *explainCommand) ofJobs() (func() ([]watch.Rank, []error), error) {
	var jobs func() ([]watch.Rank, []error)
	return c.by(func(directories []string) ([]watch.Rank, []error) {
		if jobs == nil {
			jobs = watch.Jobs(directories)
		}
		return jobs()
	})
}

// explain looks at all ranks that there are at the beginning and at the end.
func (c *explainCommand) explain(ctx context.Context) (*explain.Report, error) {
	if c.For < time.Second {
		return nil, config.Mistakef("--seconds=%v is not allowed: want 1s or more", c.For)
	}
	look, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	look = c.among(look)
	before, _ := look()
	logs := openLogs(before)
	defer logs.close()
	select {
	case <-time.After(c.For):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, errs := look()
	report := explain.Of(explain.Between(before, after), errs)
	if len(report.Missing) == 0 { // who did not answer has perhaps not ended
		report.Ended = logs.ended(before, after)
	}
	if len(report.Jobs) == 0 {
		none := errors.New("no rank was there: none of this user runs here, or none publishes (MCAST_METRICS); see --hosts")
		switch {
		case len(report.Ended) > 0:
			none = errors.New(strings.Join(report.Ended, "\n"))
		case len(before) > 0:
			none = fmt.Errorf("%d ranks were there, and did not answer a second time", len(before))
		case len(after) > 0:
			none = fmt.Errorf("%d ranks have come meanwhile: look again", len(after))
		case len(errs) > 0:
			none = nil
		}
		return nil, errors.Join(append(errs, none)...) // who did not answer is why
	}
	return report, nil
}
