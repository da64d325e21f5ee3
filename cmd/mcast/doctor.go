package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
)

// doctorCommand is the command line of `mcast doctor`.
type doctorCommand struct {
	Hosts  []string      `placeholder:"NAME,..." help:"Ask these hosts instead of this one, and compare what they say. The variables of this environment that concern a job go along, secrets do not."`
	Shell  string        `default:"ssh -o BatchMode=yes -o ConnectTimeout=5" placeholder:"COMMAND" help:"What starts a command on a host. Default: ${default}."`
	Remote string        `placeholder:"FILE" help:"This program, as those hosts name it. Default: its path here."`
	Listen time.Duration `default:"2s" placeholder:"TIME" help:"How long to listen for an IGMP querier, which takes root or CAP_NET_RAW. One that answers nobody asks every 125s. Default: ${default}."`
	NCCL   bool          `name:"nccl" default:"true" negatable:"" help:"Ask what NCCL would do with the plugin, as mcast nccl check does."`
	JSON   bool          `name:"json" help:"Print a JSON object: findings, and the facts that they come from."`
}

// diagnosis is a report on a host or on a job's.
type diagnosis interface {
	Write(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// Run looks, tries and tells. It exits with status 1 if there is a fault.
func (d *doctorCommand) Run() error {
	ctx, stop := untilSignal()
	defer stop()
	examine := d.examine
	if len(d.Hosts) > 0 {
		examine = d.ask
	}
	report, healthy, err := examine(ctx)
	if err != nil {
		return err
	}
	if d.JSON {
		err = report.WriteJSON(os.Stdout)
	} else {
		err = report.Write(os.Stdout)
	}
	if err == nil && !healthy {
		os.Exit(1)
	}
	return err
}

// examine looks at this host.
func (d *doctorCommand) examine(ctx context.Context) (diagnosis, bool, error) {
	o := doctor.Options{Environ: os.Environ(), Listen: d.Listen}
	if d.NCCL {
		program, loader, err := ncclLoader()
		if err != nil {
			return nil, false, err
		}
		o.NCCL = &check.Options{Nodes: 2, NVSwitch: "unknown", Loader: loader, Program: program,
			Environ: os.Environ(), Root: "/"}
	}
	report := doctor.NewReport(doctor.Gather(ctx, o))
	return &report, report.Healthy, nil
}

// ask has other hosts look at themselves.
func (d *doctorCommand) ask(ctx context.Context) (diagnosis, bool, error) {
	r := doctor.Remote{Shell: strings.Fields(d.Shell), Program: d.Remote, Environ: os.Environ(),
		Args: []string{"--listen=" + d.Listen.String(), fmt.Sprintf("--nccl=%t", d.NCCL)}}
	if len(r.Shell) == 0 {
		return nil, false, fmt.Errorf("--shell=%q is not allowed: want a command, such as ssh", d.Shell)
	}
	if r.Program == "" {
		var err error
		if r.Program, err = os.Executable(); err != nil {
			return nil, false, err
		}
	}
	facts, silent := doctor.Ask(ctx, d.Hosts, r)
	report := doctor.NewJobReport(facts, doctor.Matrix{}, silent)
	return &report, report.Healthy, nil
}
