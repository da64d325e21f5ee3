package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/figures"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
)

// simCommand is `mcast-lab sim`: the shipped protocol over a network in virtual time.
type simCommand struct {
	Allgather simAllgather `cmd:"" help:"An Allgather of our protocol or of a baseline over a fat tree."`
	Broadcast simBroadcast `cmd:"" help:"A Broadcast of our protocol or of a baseline over a fat tree."`
	Overlap   simOverlap   `cmd:"" help:"An Allgather and a Reduce-Scatter alone and together: rings, and ours with in-network reduction."`
	Windows   simWindows   `cmd:"" help:"An Allgather and a Reduce-Scatter at once in windows, as NCCL hands them to the plugin, beside its rings; what bytes cost cores, which hosts may share."`
	Nodes     simNodes     `cmd:"" help:"Count the traffic of a host's link that several ranks share: Allgather, Reduce-Scatter and both at once, by nodes, by flat ranks and by rings."`
	Figures   simFigures   `cmd:"" help:"Make the papers' figures: plots, numbers, and what the papers say beside what came out."`
	Soak      soakCommand  `cmd:"" help:"Run random scenarios on bad networks, shrink what fails, and replay it."`
}

// simNetwork are the flags that say what the network is.
type simNetwork struct {
	Nodes            int           `default:"16" group:"network" placeholder:"P" help:"Hosts. Default: ${default}."`
	Radix            int           `group:"network" placeholder:"n" help:"Ports of a switch. Default: one switch that joins all hosts."`
	Tiers            int           `group:"network" placeholder:"n" help:"Tiers of switches, 1 to 3. Default: the fewest that hold the hosts."`
	Leaves           int           `group:"network" placeholder:"n" help:"With --spines: a two-tier tree of this many leaf switches."`
	Spines           int           `group:"network" placeholder:"n" help:"With --leaves: and this many spine switches."`
	Oversubscription float64       `default:"1" group:"network" placeholder:"r" help:"Host ports to uplinks of a leaf switch. Default: ${default}."`
	Rails            int           `default:"1" group:"network" placeholder:"n" help:"NICs of a host, each in a fat tree of its own. Default: ${default}."`
	Rate             cli.Rate      `default:"200gbit" group:"network" placeholder:"r" help:"Of a link, such as 200gbit. Default: ${default}."`
	Latency          time.Duration `default:"1us" group:"network" placeholder:"t" help:"Of a link and the switch behind it. Default: ${default}."`
	Queue            cli.Bytes     `default:"0" group:"network" placeholder:"N" help:"Bytes that an output port of a switch holds. Default: any number."`
	Lossless         bool          `group:"network" help:"Ports wait for room instead of dropping (credits)."`
	Adaptive         bool          `group:"network" help:"Choose the uplink for each unicast packet, so that packets overtake."`

	Workers int           `default:"1" group:"hosts" placeholder:"n" help:"Threads that receive. Default: ${default}."`
	Cost    time.Duration `default:"0" group:"hosts" placeholder:"t" help:"Of receiving a packet, on its thread. Default: none."`
	Depth   int           `group:"hosts" placeholder:"n" help:"Packets that a thread's receive queue holds. Default: any number."`

	Loss      cli.Share     `group:"faults" placeholder:"p" help:"Share of packets lost on the way to a host, each receiver by itself, such as 0.001. A lost packet of a connection is sent again after 1 ms, and twice that each time: TCP with SACK is faster."`
	LinkLoss  cli.Share     `group:"faults" placeholder:"p" help:"Share of packets lost on every link."`
	Burst     float64       `group:"faults" placeholder:"n" help:"Mean packets of a burst of losses. Default: losses are independent."`
	Corrupt   cli.Share     `group:"faults" placeholder:"p" help:"Share of packets that arrive damaged, and are dropped."`
	Duplicate cli.Share     `group:"faults" placeholder:"p" help:"Share of packets that arrive twice."`
	Jitter    time.Duration `group:"faults" placeholder:"t" help:"Up to this much more delay for a packet, so that packets overtake."`
}

// simProtocol are the flags that say what runs.
type simProtocol struct {
	Bytes     string    `default:"128KiB" placeholder:"N[:M],..." help:"Bytes a rank (of its shard): sizes and ranges; K, M and G are powers of 1024. Default: ${default}."`
	Step      int       `default:"4" help:"Factor between the sizes of a range. Default: ${default}."`
	Chains    int       `placeholder:"M" help:"Roots that multicast at the same time; 2 to 4 hide the hand-over, more need --queue room or a --window. Default: 1; of an overlap one a rank, up to 64, and then a --window of 4096."`
	Subgroups int       `default:"1" placeholder:"G" help:"Multicast trees that a root's chunks are spread over. Default: ${default}."`
	Chunk     cli.Bytes `default:"4KiB" placeholder:"N" help:"Bytes of a packet. Default: ${default}."`
	Window    int       `placeholder:"n" help:"Packets that may be under way to a receiver. Default: --depth."`
	Coarse    int       `default:"1" placeholder:"n" help:"Packets that travel as one, for thousands of hosts, and are lost as one. Default: ${default}: every packet by itself."`
	Iters     int       `default:"1" placeholder:"n" help:"Operations, one after the other. Default: ${default}."`
	Seed      uint64    `default:"1" help:"Of losses, jitter and the like. Default: ${default}."`
	JSON      bool      `name:"json" help:"Print one JSON object a line instead of a table."`
}

// network checks the flags and returns the network they describe.
func (c *simNetwork) network() (network.Config, error) {
	n := network.Config{
		Tree: fattree.Config{
			Hosts: c.Nodes, Radix: c.Radix, Tiers: c.Tiers, Leaves: c.Leaves, Spines: c.Spines,
			Oversubscription: c.Oversubscription, Rails: c.Rails,
		},
		Gbps: float64(c.Rate) / 1e9, Latency: c.Latency, Queue: int(c.Queue), Lossless: c.Lossless, Adaptive: c.Adaptive,
		Workers: c.Workers, Cost: c.Cost, Depth: c.Depth,
		Faults: network.Faults{
			Loss: float64(c.Loss), LinkLoss: float64(c.LinkLoss), Burst: c.Burst, Corrupt: float64(c.Corrupt),
			Duplicate: float64(c.Duplicate), Jitter: c.Jitter,
		},
	}
	for _, part := range []struct {
		flag  string
		value cli.Share
	}{{"loss", c.Loss}, {"link-loss", c.LinkLoss}, {"corrupt", c.Corrupt}, {"duplicate", c.Duplicate}} {
		if part.value >= 1 {
			return n, config.Mistakef("--%s=%g is not allowed: want a share below 1", part.flag, float64(part.value))
		}
	}
	for _, amount := range []struct {
		flag         string
		value, least float64
	}{
		{"nodes", float64(c.Nodes), 2}, {"radix", float64(c.Radix), 0}, {"rails", float64(c.Rails), 1},
		{"workers", float64(c.Workers), 1},
		{"depth", float64(c.Depth), 0}, {"latency", float64(c.Latency), 0}, {"cost", float64(c.Cost), 0},
		{"jitter", float64(c.Jitter), 0}, {"burst", c.Burst, 0},
	} {
		if !(amount.value >= amount.least) {
			return n, config.Mistakef("--%s=%g is not allowed: want at least %g", amount.flag, amount.value, amount.least)
		}
	}
	for _, t := range []struct {
		flag  string
		value time.Duration
	}{{"latency", c.Latency}, {"cost", c.Cost}, {"jitter", c.Jitter}} {
		if t.value > time.Second {
			return n, config.Mistakef("--%s=%v is not allowed: want at most 1s", t.flag, t.value)
		}
	}
	if c.Rate == 0 {
		return n, config.Mistakef("--rate=unlimited is not allowed: want a rate such as 200gbit")
	}
	if (c.Leaves == 0) != (c.Spines == 0) {
		return n, config.Mistakef("--leaves and --spines go together: want both or neither")
	}
	if _, err := fattree.New(n.Tree); err != nil {
		return n, config.Mistakef("--nodes, --radix, --tiers, --leaves and --spines: %w", err)
	}
	return n, nil
}

// maxChunk is the largest packet, without its headers.
const maxChunk = 512 << 10

// cases checks the flags and returns a case a size.
func (c *simProtocol) cases(collective, algorithm string, net network.Config) ([]figures.Case, error) {
	all, err := cli.Sizes(c.Bytes, c.Step)
	if err != nil {
		return nil, err
	}
	allowed := figures.Algorithms(collective)
	if !slices.Contains(allowed, algorithm) {
		return nil, config.Mistakef("--algorithm=%s is not allowed for %s: want one of %s", algorithm, collective,
			strings.Join(allowed, ", "))
	}
	for _, amount := range []struct {
		flag         string
		value, least int
	}{{"chains", c.Chains, 0}, {"chunk", int(c.Chunk), 1}, {"window", c.Window, 0}, {"coarse", c.Coarse, 1},
		{"iters", c.Iters, 1}} {
		if amount.value < amount.least {
			return nil, config.Mistakef("--%s=%d is not allowed: want at least %d", amount.flag, amount.value, amount.least)
		}
	}
	if c.Chunk > maxChunk {
		return nil, config.Mistakef("--chunk=%s is not allowed: want at most %s", config.FormatBytes(int(c.Chunk)),
			config.FormatBytes(maxChunk))
	}
	if least := int(c.Chunk) + network.Header; net.Queue > 0 && net.Queue < least {
		return nil,
			config.Mistakef("--queue=%d is not allowed: want 0 for any number, or at least %d, a packet", net.Queue, least)
	}
	if c.Subgroups < 1 || c.Subgroups > multicast.MaxSubgroups {
		return nil, config.Mistakef("--subgroups=%d is not allowed: want 1 to %d", c.Subgroups, multicast.MaxSubgroups)
	}
	if algorithm == figures.Multicast && net.Tree.Hosts > group.MaxRanks {
		return nil, config.Mistakef("--nodes=%d is not allowed with %s: want at most %d", net.Tree.Hosts, figures.Multicast,
			group.MaxRanks)
	}
	if f := &net.Faults; c.Coarse > 1 &&
		(net.Queue > 0 && !net.Lossless || net.Depth > 0 || f.Loss > 0 || f.LinkLoss > 0 || f.Corrupt > 0) {
		fmt.Fprintf(os.Stderr, "mcast-lab: --coarse=%d with loss or a finite --queue or --depth: a train of %d packets is "+
			"lost as a whole, so more bytes are\n", c.Coarse, c.Coarse)
	}
	var cases []figures.Case
	for _, n := range all {
		cases = append(cases, figures.Case{
			Collective: collective, Algorithm: algorithm, Bytes: n, Net: net, Packet: int(c.Chunk), Chains: c.Chains,
			Subgroups: c.Subgroups,
			Window:    c.Window, Train: c.Coarse, Iterations: c.Iters, Seed: c.Seed,
		})
	}
	return cases, nil
}
