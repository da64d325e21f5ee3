// Command mcast-lab makes the experiments of this project: `mcast-lab sim` runs the protocol on a simulated cluster,
// `mcast-lab testbed` runs it on many hosts made of network namespaces, `mcast-lab ring` runs the ring that it is
// compared with. The program for trainings is another one, cmd/mcast, which this one runs on the hosts of a testbed.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/cli"
)

type commands struct {
	Sim     simCommand     `cmd:"" help:"Run the protocol, and others to compare it with, in virtual time."`
	Testbed testbedCommand `cmd:"" help:"Build hosts and switches of network namespaces, run ranks on them."`
	Ring    ringCommand    `cmd:"" help:"Run a collective by a ring of unicast, as mcast bench runs ours."`

	cli.Common
}

var program = cli.Program{
	Name: "mcast-lab", Description: "Experiments with torch-mcast: a simulator, a testbed, and what to compare with.",
	Statuses: `  0     it did its work, and found nothing wrong
  1     it failed
  64    a flag, an argument or a setting is wrong: nothing has begun
  124   testbed experiment: the time of --within is over
  130   testbed experiment: a signal ended it
testbed with and testbed rsh end with the status of their command, testbed run
with 1 where a rank ended with another status than 0.
`,
}

// others are the commands of mcast that are none here; a test holds the list.
var others = []string{"bench", "switch", "top", "explain", "advise", "metrics", "trace", "nccl", "doctor", "secret",
	"env", "bugreport"}

// elsewhere says where a command is that another program has; empty: no other one has it.
func elsewhere(args []string) string {
	if len(args) == 0 || !slices.Contains(others, args[0]) {
		return ""
	}
	return fmt.Sprintf("%s is a command of mcast: run mcast %s", args[0], args[0])
}

func main() {
	program.Refuse(elsewhere(os.Args[1:]))
	var c commands
	k := program.Parse(&c, ringHelp)
	if !c.Ring.Spawned { // otherwise the process that started this rank has warned
		program.WarnOfVariables()
	}
	k.FatalIfErrorf(k.Run())
}
