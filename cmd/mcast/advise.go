package main

import (
	"os"

	"github.com/torch-mcast/torch-mcast/internal/advise"
	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
)

// adviseCommand says what a training would gain over torch-mcast: docs/how-to/advise.md.
type adviseCommand struct {
	Traces       []string `arg:"" help:"Traces of torch.profiler, one a rank, best of all ranks: JSON, or such in .gz." placeholder:"TRACE"`
	Link         cli.Rate `placeholder:"RATE" help:"What a host's link carries in each direction, such as 100gbit. Default: the best that large collectives have reached."`
	RanksPerHost int      `placeholder:"N" help:"Ranks of the job on each host. Default: by the host names of the traces of all ranks, the GPUs that one has seen, or 1."`
	JSON         bool     `name:"json" help:"Print a JSON object."`
}

// Run reads and tells.
func (c *adviseCommand) Run() error {
	report, err := c.advise()
	if err != nil {
		return err
	}
	return show(os.Stdout, report, c.JSON)
}

func (c *adviseCommand) advise() (*advise.Report, error) {
	if c.RanksPerHost < 0 {
		return nil, config.Mistakef("--ranks-per-host=%d is not allowed: want at least 1", c.RanksPerHost)
	}
	var traces []*advise.Trace
	for _, path := range c.Traces {
		t, err := advise.Read(path)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	return advise.Of(traces, advise.Options{Link: float64(c.Link), PerHost: c.RanksPerHost})
}
