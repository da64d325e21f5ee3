package main

import (
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
)

// doctorCommand is the command line of `mcast doctor`.
type doctorCommand struct {
	Listen time.Duration `default:"2s" placeholder:"TIME" help:"How long to listen for an IGMP querier, which takes root or CAP_NET_RAW. One that answers nobody asks every 125s. Default: ${default}."`
	NCCL   bool          `name:"nccl" default:"true" negatable:"" help:"Ask what NCCL would do with the plugin, as mcast nccl check does."`
	JSON   bool          `name:"json" help:"Print a JSON object: findings, and the facts that they come from."`
}

// Run looks, tries and tells. It exits with status 1 if there is a fault.
func (d *doctorCommand) Run() error {
	ctx, stop := untilSignal()
	defer stop()
	o := doctor.Options{Environ: os.Environ(), Listen: d.Listen}
	if d.NCCL {
		program, loader, err := ncclLoader()
		if err != nil {
			return err
		}
		o.NCCL = &check.Options{Nodes: 2, NVSwitch: "unknown", Loader: loader, Program: program,
			Environ: os.Environ(), Root: "/"}
	}
	report := doctor.NewReport(doctor.Gather(ctx, o))
	var err error
	if d.JSON {
		err = report.WriteJSON(os.Stdout)
	} else {
		err = report.Write(os.Stdout)
	}
	if err == nil && !report.Healthy {
		os.Exit(1)
	}
	return err
}
