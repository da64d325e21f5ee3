package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/figures"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/nodes"
)

type simNodes struct {
	Hosts      int           `default:"4" placeholder:"N" help:"Hosts. Default: ${default}."`
	PerHost    int           `default:"4" placeholder:"K" help:"Ranks of a host. Default: ${default}."`
	Bytes      cli.Bytes     `default:"1MiB" placeholder:"N" help:"Bytes of a rank's shard. Default: ${default}."`
	Radix      int           `default:"32" placeholder:"n" help:"Ports of a switch of the fat tree; 0: one switch that joins all hosts. Default: ${default}."`
	Rate       cli.Rate      `default:"200gbit" placeholder:"r" help:"Of a host's link, such as 200gbit. Default: ${default}."`
	Latency    time.Duration `default:"-1ns" placeholder:"t" help:"Of a link and the switch behind it. Default: 500 ns, and in proportion less for shards below 512 KiB."`
	Coarse     int           `default:"1" placeholder:"n" help:"Packets that travel as one. Default: ${default}."`
	Way        cli.Names     `placeholder:"NAME,..." help:"nodes, nodes+switch, flat, ring. Default: all."`
	Collective cli.Names     `placeholder:"NAME,..." help:"allgather, reducescatter, both. Default: all."`
	Seed       uint64        `default:"1" help:"Of the run. Default: ${default}."`
	JSON       bool          `name:"json" help:"Print one JSON object a line instead of a table."`
}

// Run runs each collective by each way.
func (c *simNodes) Run() error {
	crowds, err := c.crowds()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if !c.JSON {
		fmt.Fprintln(t, "COLLECTIVE\tWAY\tOUT\tTO LAW\tIN\tTO LAW\tTIME\tALLOWED/TIME\tS\tLAW\tWALL")
	}
	rings := 0.0 // both at once
	for i := range crowds {
		one := &crowds[i]
		bar := newBar(fmt.Sprintf("%s by %s", one.Collective, one.Way))
		o, err := one.Run()
		bar.end()
		if err != nil {
			return err
		}
		if c.JSON {
			if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
				return err
			}
			continue
		}
		s, law := "", ""
		if o.Collective == nodes.Both {
			if o.Way == nodes.Ring {
				rings = o.TimeUS
			}
			law = fmt.Sprintf("%.3f", o.Way.Speedup(o.Hosts, o.PerHost))
			if rings > 0 {
				s = fmt.Sprintf("%.3f", rings/o.TimeUS)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%s\t%.3f\t%.2f us\t%.3f\t%s\t%s\t%.1f s\n", o.Collective, o.Way,
			cli.BytesText(o.Out), o.OutToLaw, cli.BytesText(o.In), o.InToLaw, o.TimeUS, o.Reached, s, law, o.Wall)
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// crowds checks the flags and returns the crowds that they ask for, rings first.
func (c *simNodes) crowds() ([]figures.Crowd, error) {
	for _, amount := range []struct {
		flag         string
		value, least int
	}{{"hosts", c.Hosts, 2}, {"per-host", c.PerHost, 1}, {"bytes", int(c.Bytes), 64}, {"coarse", c.Coarse, 1},
		{"radix", c.Radix, 0}} {
		if amount.value < amount.least {
			return nil, config.Mistakef("--%s=%d is not allowed: want at least %d", amount.flag, amount.value, amount.least)
		}
	}
	switch {
	case c.Hosts*c.PerHost > group.MaxRanks || c.PerHost > fattree.MaxRadix:
		return nil, config.Mistakef("--hosts=%d and --per-host=%d are not allowed: want at most %d ranks, and %d a host",
			c.Hosts, c.PerHost, group.MaxRanks, fattree.MaxRadix)
	case c.Rate == 0:
		return nil, config.Mistakef("--rate=unlimited is not allowed: want a rate such as 200gbit")
	case c.Bytes%64 != 0:
		return nil, config.Mistakef("--bytes=%s is not allowed: want a multiple of 64", config.FormatBytes(int(c.Bytes)))
	}
	cfg := nodes.Scaled(c.Hosts, c.PerHost, int(c.Bytes), c.Coarse, c.Seed)
	cfg.Radix, cfg.Gbps = c.Radix, float64(c.Rate)/1e9
	if c.Latency >= 0 {
		cfg.Latency = c.Latency
	}
	ways, err := chosen("way", c.Way,
		map[string]nodes.Way{"ring": nodes.Ring, "flat": nodes.Flat, "nodes": nodes.Nodes, "nodes+switch": nodes.Switch},
		nodes.Ways)
	if err != nil {
		return nil, err
	}
	collectives, err := chosen("collective", c.Collective, map[string]nodes.Collective{
		"allgather": nodes.Allgather, "reducescatter": nodes.ReduceScatter, "both": nodes.Both,
	}, nodes.Collectives)
	if err != nil {
		return nil, err
	}
	var all []figures.Crowd
	for _, w := range ways {
		for _, what := range collectives {
			all = append(all, figures.Crowd{Config: cfg, Way: w, Collective: what})
		}
	}
	return all, nil
}

// chosen returns what names stand for, in the order of all; all for none.
func chosen[T comparable](flag string, names []string, known map[string]T, all []T) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	var some []T
	for _, name := range names {
		v, ok := known[name]
		if !ok {
			return nil, config.Mistakef("--%s=%s is not known", flag, strings.Join(names, ","))
		}
		some = append(some, v)
	}
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !slices.Contains(some, v) }), nil
}
