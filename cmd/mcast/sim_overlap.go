package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/simnet/figures"
)

type simOverlap struct {
	simNetwork  `embed:""`
	simProtocol `embed:""`
}

// Run compares the two pairs for each size.
func (c *simOverlap) Run() error {
	net, err := c.network()
	if err != nil {
		return err
	}
	cases, err := c.cases("allgather", figures.Multicast, net)
	if err != nil {
		return err
	}
	if c.Iters != 1 || c.Window != 0 {
		return fmt.Errorf("--iters and --window mean nothing to an overlap")
	}
	for i := range cases {
		one := &cases[i]
		bar := newBar("overlap of " + config.FormatBytes(one.Bytes))
		o, err := figures.Pair{
			Bytes: one.Bytes, Net: net, Packet: one.Packet, Train: one.Train, Chains: one.Chains, Subgroups: one.Subgroups, Seed: one.Seed,
		}.Run()
		bar.end()
		if err != nil {
			return err
		}
		if err := printPair(&o, c.JSON); err != nil {
			return err
		}
	}
	return nil
}

func printPair(o *figures.PairOutcome, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(o)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	row("collectives", "Allgather and Reduce-Scatter of %s a rank, %d ranks, %d chains", config.FormatBytes(o.Bytes), o.Nodes, o.Chains)
	row("ours alone", "Allgather %.2f us, Reduce-Scatter %.2f us", o.Gather, o.Reduce)
	row("ours together", "%.2f us: Allgather after %.2f, Reduce-Scatter after %.2f", o.Both, o.GatherOfBoth, o.ReduceOfBoth)
	row("rings together", "%.2f us", o.Rings)
	row("S", "%.3f; 2 - 2/P is %.3f", o.S, o.Law)
	row("events", "%d in %.2f s, %.2f M/s", o.Events, o.Wall, float64(o.Events)/o.Wall/1e6)
	row("state", "hash %s, seed %d", o.Hash, o.Seed)
	return t.Flush()
}
