package main

import (
	"encoding/json"
	"net/netip"
	"os"

	"github.com/torch-mcast/torch-mcast/internal/lab/attack"
)

// testbedAttackCommand is the command line of `mcast testbed attack`.
type testbedAttackCommand struct {
	Interface string     `required:"" help:"That reaches the ranks."`
	Group     netip.Addr `required:"" help:"MCAST_GROUP of the ranks."`
	Port      uint16     `required:"" help:"MCAST_PORT of the ranks."`
	Count     int        `default:"10000" help:"Datagrams to send. Default: ${default}."`
	Rate      float64    `help:"Of them a second. Default: as fast as they go."`
	Seed      uint64     `help:"Which ones."`
}

// Run attacks and prints what it did.
func (c *testbedAttackCommand) Run() error {
	ctx, stop := untilSignal()
	defer stop()
	report, err := attack.Run(ctx, attack.Options{
		Interface: c.Interface, Group: c.Group, Port: c.Port, Count: c.Count, Rate: c.Rate, Seed: c.Seed,
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
