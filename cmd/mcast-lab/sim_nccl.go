package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/reduction"
)

type simWindows struct {
	Hosts    int           `default:"4" placeholder:"P" help:"Hosts on one switch. Default: ${default}."`
	Bytes    cli.Bytes     `default:"4MiB" placeholder:"N" help:"Bytes of a rank's shard. Default: ${default}."`
	Windows  int           `default:"16" placeholder:"n" help:"Windows that each shard is cut into. Default: ${default}."`
	InFlight int           `default:"8" placeholder:"n" help:"Windows of each collective that are in flight. Default: ${default}."`
	Rate     cli.Rate      `default:"100mbit" placeholder:"r" help:"Of a host's link, such as 100mbit. Default: ${default}."`
	Latency  time.Duration `default:"20us" placeholder:"t" help:"Of a link and the switch behind it. Default: ${default}."`
	Skew     time.Duration `default:"50us" placeholder:"t" help:"The longest pause of a rank before it posts a window. Default: ${default}."`
	Chunk    cli.Bytes     `default:"8KiB" placeholder:"N" help:"Bytes of a datagram. Default: ${default}."`

	CPU       float64       `name:"cpu" group:"cores" placeholder:"ns" help:"Of a rank's core for each byte that it sends or receives. Default: 0."`
	Datagram  time.Duration `group:"cores" placeholder:"t" help:"And for each datagram. Default: 0."`
	SwitchCPU float64       `name:"switch-cpu" group:"cores" placeholder:"ns" help:"Of the switch's core for each byte that it sends or receives. Default: 0."`
	RingCPU   float64       `name:"ring-cpu" group:"cores" placeholder:"ns" help:"Of a rank's core for each byte that it sends or receives in a ring. Default: 0."`
	Turn      time.Duration `group:"cores" placeholder:"t" help:"The longest that an idle rank or switch waits for its turn on a core. Default: 0."`
	Cores     int           `group:"cores" placeholder:"n" help:"Cores that all hosts and the switch share. Default: each has one of its own."`

	Seed uint64 `default:"1" help:"Of pauses. Default: ${default}."`
	JSON bool   `name:"json" help:"Print a JSON object instead of a table."`
}

// windowsOutcome is how long each took, in milliseconds.
type windowsOutcome struct {
	Hosts     int     `json:"hosts"`
	Bytes     int     `json:"bytes"`
	RateMbit  float64 `json:"rate_mbit"`
	Windows   int     `json:"windows_a_shard"`
	InFlight  int     `json:"in_flight"`
	CPU       float64 `json:"cpu_ns_per_byte"`
	SwitchCPU float64 `json:"switch_cpu_ns_per_byte"`
	RingCPU   float64 `json:"ring_cpu_ns_per_byte"`
	Cores     int     `json:"cores_of_all,omitempty"` // 0: each has its own
	Turn      float64 `json:"turn_ms,omitempty"`

	Both     float64 `json:"both_ms"`
	Rings    float64 `json:"rings_ms"`
	S        float64 `json:"s"`
	Law      float64 `json:"law"`
	Shards   float64 `json:"shards"` // that a link would carry in the time of both
	Repaired uint64  `json:"repaired"`
	Seed     uint64  `json:"seed"`
	Hash     string  `json:"hash"`
}

// Run runs both at once, and the rings.
func (c *simWindows) Run() error {
	bar := newBar("windows of " + config.FormatBytes(int(c.Bytes)))
	o, err := c.outcome()
	bar.end()
	if err != nil {
		return err
	}
	return c.print(o)
}

func (c *simWindows) outcome() (*windowsOutcome, error) {
	for _, amount := range []struct {
		flag         string
		value, least int
	}{{"hosts", c.Hosts, 2}, {"windows", c.Windows, 1}, {"in-flight", c.InFlight, 1}, {"cores", c.Cores, 0}} {
		if amount.value < amount.least {
			return nil, config.Mistakef("--%s=%d is not allowed: want at least %d", amount.flag, amount.value, amount.least)
		}
	}
	if c.Rate == 0 {
		return nil, config.Mistakef("--rate=unlimited is not allowed: want a rate such as 100mbit")
	}
	cpu := network.CPU{
		Cost: c.Datagram, PerByte: c.CPU, SwitchCost: c.Datagram, SwitchPerByte: c.SwitchCPU, Cores: c.Cores,
		Turn: c.Turn,
	}
	w := reduction.InWindows{
		Config: reduction.Config{
			Net: network.Config{
				Tree: fattree.Config{Hosts: c.Hosts}, Gbps: float64(c.Rate) / 1e9, Latency: c.Latency, CPU: cpu,
			},
			Seed: c.Seed, Bytes: int(c.Bytes), Chunk: int(c.Chunk), Windows: c.Windows, InFlight: c.InFlight, Skew: c.Skew,
		},
		Ring: network.CPU{PerByte: c.RingCPU, Cores: c.Cores, Turn: c.Turn},
	}
	r, err := w.Run()
	if err != nil {
		return nil, err
	}
	rings, err := w.Rings()
	if err != nil {
		return nil, err
	}
	ms := func(t network.Time) float64 { return float64(t) / float64(time.Millisecond) }
	shard := float64(c.Bytes) * 8 / float64(c.Rate) * 1e3 // ms
	return &windowsOutcome{
		Hosts: c.Hosts, Bytes: int(c.Bytes), RateMbit: float64(c.Rate) / 1e6, Windows: c.Windows, InFlight: c.InFlight,
		CPU: c.CPU, SwitchCPU: c.SwitchCPU, RingCPU: c.RingCPU, Cores: c.Cores, Turn: ms(c.Turn),
		Both: ms(r.Both()), Rings: ms(rings), S: float64(rings) / float64(r.Both()), Law: 2 - 2/float64(c.Hosts),
		Shards: ms(r.Both()) / shard, Repaired: r.Repaired, Seed: c.Seed, Hash: fmt.Sprintf("%016x", r.Hash),
	}, nil
}

func (c *simWindows) print(o *windowsOutcome) error {
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(o)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "ours together\t%.1f ms, %.2f shards on a link; %d sent again\n", o.Both, o.Shards, o.Repaired)
	fmt.Fprintf(t, "rings together\t%.1f ms\n", o.Rings)
	fmt.Fprintf(t, "S\t%.3f; 2 - 2/P is %.3f\n", o.S, o.Law)
	return t.Flush()
}
