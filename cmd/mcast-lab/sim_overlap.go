package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/figures"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
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
	if c.Iters != 1 || c.Chunk != 4<<10 {
		return config.Mistakef("--iters and --chunk mean nothing to an overlap")
	}
	for i := range cases {
		one := &cases[i]
		bar := newBar("overlap of " + config.FormatBytes(one.Bytes))
		o, err := figures.Pair{
			Bytes: one.Bytes, Net: net, Train: one.Train, Chains: one.Chains, Subgroups: one.Subgroups, Window: one.Window,
			Seed: one.Seed,
		}.Run()
		bar.end()
		if err != nil {
			return err
		}
		if err := printPair(&o, c.JSON); err != nil {
			return err
		}
		for _, note := range lawNotes(&o, &net) {
			fmt.Fprintln(os.Stderr, "mcast-lab:", note)
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
	row("collectives", "Allgather and Reduce-Scatter of %s a rank, %d ranks", config.FormatBytes(o.Bytes), o.Nodes)
	row("protocol", "%d chains, %d subgroups, %s, %d packets a train", o.Chains, o.Subgroups, windowText(o.Window),
		o.Train)
	row("ours alone", "Allgather %.2f us, Reduce-Scatter %.2f us", o.Gather, o.Reduce)
	row("ours together", "%.2f us, the Reduce-Scatter after %.2f", o.Both, o.ReduceOfBoth)
	row("rings together", "%.2f us", o.Rings)
	row("S", "%.3f; 2 - 2/P is %.3f", o.S, o.Law)
	row("events", "%d of both together; all four runs took %.2f s", o.Events, o.Wall)
	row("state", "hash %s, seed %d", o.Hash, o.Seed)
	return t.Flush()
}

// lawNotes says why S cannot be expected to be 2 - 2/P.
func lawNotes(o *figures.PairOutcome, net *network.Config) (notes []string) {
	const large = 512 << 10
	if o.Bytes < large {
		notes = append(notes, fmt.Sprintf("shards of %s are small for an overlap: 2 - 2/P is for large ones, from about %s",
			config.FormatBytes(o.Bytes), config.FormatBytes(large)))
	}
	if net.Queue > 0 && !net.Lossless && (o.Window == 0 || o.Window*sim.PacketBytes > net.Queue) {
		notes = append(notes,
			fmt.Sprintf("%d chains may have more under way than a --queue of %s holds: S suffers where ports drop; --lossless "+
				"ones wait", o.Chains, config.FormatBytes(net.Queue)))
	}
	if f := &net.Faults; f.Loss > 0 || f.LinkLoss > 0 || f.Corrupt > 0 {
		notes = append(notes,
			"with loss S compares recoveries, and the rings' connections wait 1 ms for a lost packet: no measure of 2 - 2/P")
	}
	return notes
}

// windowText says how many packets may be under way to a receiver.
func windowText(packets int) string {
	if packets == 0 {
		return "no window"
	}
	return fmt.Sprintf("a window of %d packets", packets)
}
