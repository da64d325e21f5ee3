package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// testbedCommand is the command line of `mcast-lab testbed`.
type testbedCommand struct {
	Up       testbedUpCommand       `cmd:"" help:"Build a testbed, or mend the one that is up."`
	With     testbedWithCommand     `cmd:"" help:"Build a testbed, run a command while it is up, take it down. Needs no root."`
	Inside   testbedInsideCommand   `cmd:"" hidden:""`
	Down     testbedDownCommand     `cmd:"" help:"End all processes in a testbed and remove it, in any state."`
	Status   testbedStatusCommand   `cmd:"" help:"Show the testbeds of this machine."`
	Run      testbedRunCommand      `cmd:"" help:"Run a command on every host of a testbed, as torchrun does."`
	Rsh      testbedRshCommand      `cmd:"" help:"Run a command on one host, as ssh does; mpirun starts its daemons by it."`
	Counters testbedCountersCommand `cmd:"" help:"Show what passed every host NIC and switch port."`
	Fault    testbedFaultCommand    `cmd:"" help:"Break a link, and mend it."`

	Faults        testbedFaultsCommand        `cmd:"" help:"Try the catalogue of faults, docs/reference/faults.md, on testbeds of their own."`
	FaultWorker   testbedFaultWorkerCommand   `cmd:"" hidden:""`
	TroubleWorker testbedTroubleWorkerCommand `cmd:"" hidden:""`
	Refuse        testbedRefuseCommand        `cmd:"" hidden:"" help:"Run a command that is refused some system calls."`
	Attack        testbedAttackCommand        `cmd:"" help:"Record what the ranks of a group multicast, forge and replay it, from their addresses. For hosts of a testbed."`

	Experiment testbedExperimentCommand `cmd:"" help:"Measure torch-mcast beside its peers, on testbeds of their own."`
}

// testbedName is the flag of all commands that are about one testbed.
type testbedName struct {
	Name string `default:"tb" placeholder:"name" help:"The testbed. Default: ${default}."`
}

// testbedUpFlags say what to build.
type testbedUpFlags struct {
	testbedName
	Hosts int       `required:"" placeholder:"P" help:"Network namespaces in which ranks run, 1 to 1000."`
	Leaf  int       `default:"1" placeholder:"K" help:"Leaf switches; hosts are spread over them in order. Default: ${default}."`
	Spine int       `default:"0" placeholder:"S" help:"Spine switches, each joined to every leaf. Default: ${default}, for one leaf."`
	Rate  cli.Rate  `default:"unlimited" placeholder:"rate" help:"Of a host's link in each direction, such as 500mbit or 10gbit. Default: ${default}."`
	Trunk cli.Rate  `default:"unlimited" placeholder:"rate" help:"Of each link between a leaf and a spine, likewise. Default: ${default}."`
	Burst cli.Bytes `placeholder:"size" help:"What a link that was idle passes at once. Default: what a timer that is 2 ms late needs, at least 4 frames."`
	MTU   cli.Bytes `name:"mtu" default:"9000" placeholder:"bytes" help:"Of all links. Default: ${default}."`
	IPv6  bool      `name:"ipv6" help:"Hosts have IPv6 alone, and network switches snoop MLD. Default: IPv4 alone."`
	Loss  cli.Share `placeholder:"p" help:"Share of the frames of a host's link that are lost in each direction, such as 0.01 or 1%. Default: none."`
}

// spec is the testbed that the flags ask for.
func (c *testbedUpFlags) spec() testbed.Spec {
	return testbed.Spec{
		Name: c.Name, Hosts: c.Hosts, Leaves: c.Leaf, Spines: c.Spine, Rate: float64(c.Rate), Trunk: float64(c.Trunk),
		Burst: int(c.Burst), MTU: int(c.MTU), Loss: float64(c.Loss), IPv6: c.IPv6,
	}
}

// up builds it.
func (c *testbedUpFlags) up(ctx context.Context) (*testbed.Testbed, error) {
	progress := newBar("testbed " + c.Name)
	defer progress.end()
	return testbed.Up(ctx, c.spec(), progress.set)
}

// testbedUpCommand is the command line of `mcast-lab testbed up`.
type testbedUpCommand struct {
	testbedUpFlags
	Force bool `help:"If it is up with other flags, take it down first."`
}

// Run builds it.
func (c *testbedUpCommand) Run() error {
	if err := c.spec().Check(); err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	tb, err := c.up(ctx)
	if errors.Is(err, testbed.ErrOther) && c.Force {
		if err := testbed.Down(c.Name); err != nil {
			return err
		}
		tb, err = c.up(ctx)
	}
	switch {
	case errors.Is(err, testbed.ErrOther):
		return fmt.Errorf("%w, or say --force", err)
	case err != nil:
		return err
	}
	hosts := tb.Hosts()
	fmt.Printf("testbed %s is up: %v\n%s to %s: %s to %s\n", tb.Name(), tb.Spec(), hosts[0].Namespace,
		hosts[len(hosts)-1].Namespace, hosts[0].Addr, hosts[len(hosts)-1].Addr)
	return nil
}

// testbedDownCommand is the command line of `mcast-lab testbed down`.
type testbedDownCommand struct{ testbedName }

// Run removes it.
func (c *testbedDownCommand) Run() error { return testbed.Down(c.Name) }

// testbedStatusCommand is the command line of `mcast-lab testbed status`.
type testbedStatusCommand struct {
	Name string `placeholder:"name" help:"The testbed. Default: all of this machine."`
	JSON bool   `name:"json" help:"Print a JSON object a testbed, a line each."`
}

// Run shows them. One that is not whole is an error.
func (c *testbedStatusCommand) Run() error {
	names := []string{c.Name}
	if c.Name == "" {
		var err error
		if names, err = testbed.List(); err != nil {
			return err
		}
		if len(names) == 0 && !c.JSON {
			fmt.Println("no testbed is up")
			return nil
		}
	}
	var errs []error
	var text strings.Builder
	for _, name := range names {
		errs = append(errs, showTestbed(&text, name, c.JSON))
	}
	_, err := io.WriteString(os.Stdout, text.String())
	return errors.Join(append(errs, err)...)
}

// testbedStatus is what `mcast-lab testbed status --json` prints of a testbed: docs/reference/commands.md.
type testbedStatus struct {
	Name      string           `json:"name"`
	Spec      testbed.Spec     `json:"spec"`
	Processes int              `json:"processes"`
	Places    []testbed.Faults `json:"places"` // all hosts, and then all aggregation nodes
}

func showTestbed(w io.Writer, name string, asJSON bool) error {
	tb, err := testbed.Open(name)
	if err != nil {
		return err
	}
	if _, err := tb.Counters(); err != nil { // which reads all that there should be
		return err
	}
	faults, err := tb.Faults()
	if err != nil {
		return err
	}
	processes, err := tb.Processes()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(testbedStatus{name, tb.Spec(), len(processes), faults})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "testbed %s: %v, %d processes\n", name, tb.Spec(), len(processes))
	for i, f := range faults {
		own := testbed.Loss{}
		if i < len(tb.Hosts()) {
			own.Share = tb.Spec().Loss
		}
		writeFaults(&text, f, own)
	}
	_, err = io.WriteString(w, text.String())
	return err
}

// testbedCountersCommand is the command line of `mcast-lab testbed counters`.
type testbedCountersCommand struct {
	testbedName
	JSON bool `name:"json" help:"Print a JSON object a port instead of a table."`
}

// Run shows them.
func (c *testbedCountersCommand) Run() error {
	tb, err := testbed.Open(c.Name)
	if err != nil {
		return err
	}
	counters, err := tb.Counters()
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.PrintJSON(os.Stdout, counters)
	}
	return writeCounters(os.Stdout, counters)
}

// writeCounters writes a table of ports, and the sums of their kinds.
func writeCounters(w io.Writer, counters testbed.Counters) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "device\tport\tsent (B)\tframes\tdrops\treceived (B)\tframes\tdrops\t")
	row := func(device, port string, x testbed.Traffic) {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", device, port, x.SentBytes, x.SentPackets, x.SentDrops,
			x.ReceivedBytes, x.ReceivedPackets, x.ReceivedDrops)
	}
	for _, p := range counters {
		row(p.Device, p.Name, p.Traffic)
	}
	for _, k := range append([]testbed.Kind{testbed.HostNIC, testbed.NodeNIC}, testbed.SwitchKinds...) {
		row("all", string(k)+"s", counters.Total(k))
	}
	row("all", "switch ports", counters.Total(testbed.SwitchKinds...))
	return t.Flush()
}
