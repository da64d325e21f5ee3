package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/figures"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/trace"
)

// simRun are the flags of a collective.
type simRun struct {
	simNetwork  `embed:""`
	simProtocol `embed:""`
	Segment     cli.Bytes `default:"0" placeholder:"N" help:"Bytes that a host passes on as soon as it holds them; a shard or more: the whole shard. Only for algorithms other than mcast. Default: a packet, or a train."`
	Trace       string    `type:"path" placeholder:"FILE" help:"Write what each rank did, and when, as JSON that ui.perfetto.dev opens. Only for mcast and one size."`
}

type simAllgather struct {
	simRun    `embed:""`
	Algorithm string `default:"mcast" placeholder:"NAME" help:"mcast (ours), ring, linear or doubling. Default: ${default}."`
}

// Run runs the Allgather.
func (c *simAllgather) Run() error { return c.run("allgather", c.Algorithm) }

type simBroadcast struct {
	simRun    `embed:""`
	Algorithm string `default:"mcast" placeholder:"NAME" help:"mcast (ours), binomial, knomial (of 4), binary, chain or gleam. Default: ${default}."`
}

// Run runs the Broadcast.
func (c *simBroadcast) Run() error { return c.run("broadcast", c.Algorithm) }

func (c *simRun) run(collective, algorithm string) error {
	net, err := c.network()
	if err != nil {
		return err
	}
	cases, err := c.cases(collective, algorithm, net)
	if err != nil {
		return err
	}
	if c.Trace != "" {
		if len(cases) != 1 || algorithm != figures.Multicast {
			return config.Mistakef("--trace wants one size, and --algorithm=mcast")
		}
		cases[0].Trace = true
	}
	if c.Segment != 0 && algorithm == figures.Multicast {
		return config.Mistakef("--segment wants an --algorithm other than mcast, which passes nothing on")
	}
	for i := range cases {
		cases[i].Segment = int(c.Segment)
	}
	write, err := c.traceFile()
	if err != nil {
		return err
	}
	out := outcomes{w: os.Stdout, json: c.JSON}
	for _, one := range cases {
		bar := newBar(fmt.Sprintf("%s of %s", collective, config.FormatBytes(one.Bytes)))
		o, err := one.Run(bar.set)
		bar.end()
		if err != nil {
			return err
		}
		if err := out.print(&o); err != nil {
			return err
		}
		if err := write(o.Spans); err != nil {
			return err
		}
	}
	return nil
}

// traceFile opens the file of --trace before a simulation that may take long, and returns what fills it.
func (c *simRun) traceFile() (write func([]trace.Span) error, err error) {
	if c.Trace == "" {
		return func([]trace.Span) error { return nil }, nil
	}
	f, err := os.OpenFile(c.Trace, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--trace: %w", err)
	}
	return func(spans []trace.Span) error {
		return errors.Join(f.Truncate(0), trace.Write(f, spans), f.Close())
	}, nil
}

// outcomes prints the outcomes of cases as they come.
type outcomes struct {
	w     io.Writer
	json  bool
	begun bool
}

func (p *outcomes) print(o *figures.Outcome) error {
	if p.json {
		return json.NewEncoder(p.w).Encode(o)
	}
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	if p.begun {
		fmt.Fprintln(t)
	}
	p.begun = true
	row := func(what, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	row("collective", "%s of %s a rank by %s, %d ranks", o.Collective, config.FormatBytes(o.Bytes), o.Algorithm, o.Nodes)
	if o.Algorithm == figures.Multicast {
		row("protocol", "%d chains, %d subgroups, %d packets a train", o.Chains, o.Subgroups, o.Train)
	}
	row("time", "%.2f us (virtual, mean of %d)", o.TimeUS, o.Iterations)
	row("received", "%.2f Gbit/s a rank", o.Goodput)
	row("sent", "%s by the busiest host", cli.BytesText(o.Sent))
	row("traffic", "%s over all links, %s in and out of switch ports, %s between switches", cli.BytesText(o.Links),
		cli.BytesText(o.Switch), cli.BytesText(o.Core))
	row("lost", "%d packets, %d more at full receive queues; %d packets sent again, %d datagrams not placed", o.Lost,
		o.Full, o.Again, o.Late)
	row("events", "%d in %.2f s, %.2f M/s", o.Events, o.Wall, float64(o.Events)/o.Wall/1e6)
	row("state", "hash %s, seed %d", o.Hash, o.Seed)
	return t.Flush()
}
