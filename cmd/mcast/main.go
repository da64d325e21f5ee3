// Command mcast measures and explains torch-mcast: `mcast bench` runs the collectives, `mcast switch` sums for
// Reduce-Scatters in the network, `mcast top` shows what running ranks do, `mcast explain` says why they are slow,
// `mcast advise` says how much a training on gloo or NCCL would gain, `mcast metrics` gives metrics of ranks to
// Prometheus, `mcast nccl` says how NCCL will use the plugin, `mcast doctor` finds faults of this host, `mcast env`
// shows the configuration, `mcast secret` makes a secret for a job. The program for experiments is another one:
// cmd/mcast-lab.
package main

import (
	"os"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/bench"
	"github.com/torch-mcast/torch-mcast/internal/cli"
)

type commands struct {
	Bench   bench.Command  `cmd:"" help:"Run a collective, check every byte, print times and bandwidths."`
	Switch  switchCommand  `cmd:"" help:"Run the switch, which adds gradients on their way."`
	Top     topCommand     `cmd:"" help:"Show what the ranks of this host do, and who is late."`
	Explain explainCommand `cmd:"" help:"Say which rank, link or host makes a running job slow."`
	Advise  adviseCommand  `cmd:"" help:"Say what a training on gloo or NCCL would gain, from its traces."`
	Metrics metricsCommand `cmd:"" help:"Give Prometheus the counters of this host's ranks."`
	Trace   traceCommand   `cmd:"" help:"Work on traces of the last operations of ranks."`
	NCCL    ncclCommand    `cmd:"" name:"nccl" help:"Say what NCCL will do with the plugin here, and help it."`
	Doctor  doctorCommand  `cmd:"" help:"Find faults of this host and say what helps. Needs no root."`
	Secret  secretCommand  `cmd:"" help:"Print a new secret of 256 bits for MCAST_SECRET."`
	Env     envCommand     `cmd:"" help:"List the MCAST_* variables and their values here."`

	Bugreport bugreportCommand `cmd:"" help:"Write an archive for a report of a fault, and nothing secret."`

	cli.Common
}

var program = cli.Program{
	Name: "mcast", Description: "Multicast collectives for sharded training.",
	Statuses: `  0     it did its work, and found nothing wrong
  1     it failed; of doctor: a warning; of explain: a finding; of nccl check:
        NCCL will not use the plugin
  2     of doctor: a fault
  3     of doctor and explain: it could not look; of top --once: it saw no rank,
        or a switch did not answer
  64    a flag, an argument or a setting is wrong: nothing has begun
`,
}

func main() {
	program.Refuse(moved(os.Args[1:]))
	var c commands
	k := program.Parse(&c, kong.Configuration(readFlagFile), bench.Help)
	if !c.Bench.Spawned { // otherwise the process that started this rank has warned
		program.WarnOfVariables()
	}
	k.FatalIfErrorf(k.Run())
}
