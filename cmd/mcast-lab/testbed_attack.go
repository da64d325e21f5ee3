package main

import (
	"encoding/json"
	"net/netip"
	"os"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/lab/attack"
)

// testbedAttackCommand is the command line of `mcast-lab testbed attack`.
type testbedAttackCommand struct {
	Interface string         `required:"" xor:"whom" help:"Forge datagrams to the ranks that it reaches, with --group and --port."`
	Group     netip.Addr     `help:"MCAST_GROUP of the ranks."`
	Port      uint16         `help:"MCAST_PORT of the ranks."`
	Connect   netip.AddrPort `required:"" xor:"whom" placeholder:"address:port" help:"Connect to this listener instead, and say anything but its secret."`
	Switch    bool           `help:"The listener is a switch (mcast switch). Default: a rank."`
	AtOnce    int            `default:"256" help:"Connections open at a time. Default: ${default}."`
	Count     int            `default:"10000" help:"Datagrams to send, or connections to make. Default: ${default}."`
	Rate      float64        `help:"Of them a second. Default: as fast as they go."`
	Seed      uint64         `help:"Which ones."`
}

// Run attacks and prints a report of the attack.
func (c *testbedAttackCommand) Run() error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	var report any
	var err error
	if c.Connect.IsValid() {
		report, err = attack.Connect(ctx, attack.ConnectOptions{
			To: c.Connect, Switch: c.Switch, Count: c.Count, AtOnce: c.AtOnce, Rate: c.Rate, Seed: c.Seed,
		})
	} else {
		report, err = attack.Run(ctx, attack.Options{
			Interface: c.Interface, Group: c.Group, Port: c.Port, Count: c.Count, Rate: c.Rate, Seed: c.Seed,
		})
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
