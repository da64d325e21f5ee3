package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// testbedFaultCommand is the command line of `mcast-lab testbed fault`.
type testbedFaultCommand struct {
	Loss        testbedLossCommand        `cmd:"" help:"Lose a share of the packets of a link: all, or by direction, size, protocol or peer."`
	Link        testbedLinkCommand        `cmd:"" help:"Take a link down or up, as if its cable were pulled."`
	Flap        testbedFlapCommand        `cmd:"" help:"Take a link down and up several times."`
	Interface   testbedInterfaceCommand   `cmd:"" help:"Take eth0 of a host down or up, as 'ip link set' does there."`
	Address     testbedAddressCommand     `cmd:"" help:"Take the address of a host away and give it back at once."`
	MTU         testbedMTUCommand         `cmd:"" name:"mtu" help:"Make the switch's port drop longer packets, without a word."`
	Rate        testbedRateCommand        `cmd:"" help:"Make a host's link slower or faster."`
	Delay       testbedDelayCommand       `cmd:"" help:"Make everything that goes to a host later, until ^C."`
	IGMP        testbedIGMPCommand        `cmd:"" name:"igmp" help:"Make the switch forget a host's groups, or ask for them again."`
	Signal      testbedSignalCommand      `cmd:"" help:"Stop, wake or kill the rank of a host, or a switch (mcast switch)."`
	Freeze      testbedFreezeCommand      `cmd:"" help:"Stop all processes of a host for a time."`
	Descriptors testbedDescriptorsCommand `cmd:"" help:"Bound how many files and sockets the processes of a host may open."`
	Heal        testbedHealCommand        `cmd:"" help:"End all faults of links, interfaces and ports."`
}

// testbedPlace is the arguments of a fault: where.
type testbedPlace struct {
	testbedName
	Place string `arg:"" help:"h2 or n0: host 2 or the host of switch 0; also an index or an address; all: every host."`
}

// each calls f for the place, or for all hosts.
func (p *testbedPlace) each(f func(tb *testbed.Testbed, namespace string) error) error {
	if p.Place != "all" {
		tb, namespace, err := openPlace(p.Name, p.Place)
		if err != nil {
			return err
		}
		return f(tb, namespace)
	}
	tb, err := testbed.Open(p.Name)
	if err != nil {
		return err
	}
	for _, h := range tb.Hosts() {
		if err := f(tb, h.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// testbedLossCommand is the command line of `mcast-lab testbed fault loss`.
type testbedLossCommand struct {
	testbedPlace
	Share    cli.Share `arg:"" help:"Of the packets that match, such as 1% or 0.01; 1 is a black hole, 0 ends it."`
	At       string    `placeholder:"in|out|firewall" help:"Lose packets to the host, from the host, or by the host's own firewall, which tells the sender. Default: in both directions."`
	Protocol string    `placeholder:"udp|tcp|igmp" help:"Default: all but IGMP."`
	Cast     string    `placeholder:"unicast|multicast" help:"Default: both."`
	Above    cli.Bytes `placeholder:"bytes" help:"Only packets of more bytes, header included."`
	Peer     string    `placeholder:"place" help:"Only packets from or to this host: h2, or n0 for the host of switch 0."`
}

// Run sets it.
func (c *testbedLossCommand) Run() error {
	return c.each(func(tb *testbed.Testbed, namespace string) error {
		l := testbed.Loss{Share: float64(c.Share), At: c.At, Protocol: c.Protocol, Cast: c.Cast, Above: int(c.Above)}
		if c.Peer != "" {
			peer, err := placeOf(tb, c.Peer)
			if err != nil {
				return config.Mistakef("--peer: %w", err)
			}
			l.Peer = addressOf(tb, peer)
		}
		return tb.SetLoss(namespace, l)
	})
}

// addressOf returns the address of a place that there is.
func addressOf(tb *testbed.Testbed, namespace string) (a netip.Addr) {
	for _, h := range tb.Hosts() {
		if h.Namespace == namespace {
			a = h.Addr
		}
	}
	for _, n := range tb.Nodes() {
		if n.Namespace == namespace {
			a = n.Addr
		}
	}
	return a
}

// testbedLinkCommand is the command line of `mcast-lab testbed fault link`.
type testbedLinkCommand struct {
	testbedPlace
	State string `arg:"" enum:"up,down" help:"up or down."`
}

// Run sets it.
func (c *testbedLinkCommand) Run() error {
	return c.each(func(tb *testbed.Testbed, namespace string) error { return tb.SetLink(namespace, c.State == "up") })
}

// testbedFlapCommand is the command line of `mcast-lab testbed fault flap`.
type testbedFlapCommand struct {
	testbedPlace
	Times int           `default:"5" placeholder:"N" help:"How often. Default: ${default}."`
	Down  time.Duration `default:"200ms" placeholder:"time" help:"How long it is down each time. Default: ${default}."`
	Up    time.Duration `default:"1s" placeholder:"time" help:"How long it is up between. Default: ${default}."`
}

// Run does it, and leaves the link up, also when a signal ends it.
func (c *testbedFlapCommand) Run() error {
	if c.Times < 1 || c.Down <= 0 || c.Up < 0 {
		return config.Mistakef("--times, --down and --up: want at least once, down for more than 0s, up for at least 0s")
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	return c.each(func(tb *testbed.Testbed, namespace string) error {
		return tb.Flap(ctx, namespace, c.Times, c.Down, c.Up)
	})
}

// testbedInterfaceCommand is the command line of `mcast-lab testbed fault interface`.
type testbedInterfaceCommand struct {
	testbedPlace
	State string `arg:"" enum:"up,down" help:"up or down."`
}

// Run sets it.
func (c *testbedInterfaceCommand) Run() error {
	return c.each(func(tb *testbed.Testbed, namespace string) error { return tb.SetInterface(namespace, c.State == "up") })
}

// testbedAddressCommand is the command line of `mcast-lab testbed fault address`.
type testbedAddressCommand struct{ testbedPlace }

// Run does it.
func (c *testbedAddressCommand) Run() error { return c.each((*testbed.Testbed).RenewAddress) }

// testbedMTUCommand is the command line of `mcast-lab testbed fault mtu`.
type testbedMTUCommand struct {
	testbedPlace
	Bytes cli.Bytes `arg:"" help:"Of the switch's port, such as 1500; 0 is the testbed's own."`
}

// Run sets it.
func (c *testbedMTUCommand) Run() error {
	return c.each(func(tb *testbed.Testbed, namespace string) error { return tb.SetMTU(namespace, int(c.Bytes)) })
}

// testbedRateCommand is the command line of `mcast-lab testbed fault rate`.
type testbedRateCommand struct {
	testbedPlace
	Rate string `arg:"" help:"Such as 100mbit; own is the testbed's."`
}

// Run sets it.
func (c *testbedRateCommand) Run() error {
	rate := 0.0
	if c.Rate != "own" {
		var err error
		if rate, err = config.ParseRate(c.Rate); err != nil {
			return config.Mistakef("%w, or own", err)
		}
		if rate == 0 {
			return config.Mistakef("unlimited is not allowed here: want a rate such as 100mbit, or own")
		}
	}
	return c.each(func(tb *testbed.Testbed, namespace string) error { return tb.SetRate(namespace, rate) })
}

// testbedDelayCommand is the command line of `mcast-lab testbed fault delay`.
type testbedDelayCommand struct {
	testbedName
	Place string        `arg:"" help:"h2 or n0: host 2 or the host of switch 0; also an index or an address."`
	Time  time.Duration `arg:"" help:"Such as 20ms, up to 10s."`
	For   time.Duration `placeholder:"time" help:"How long. Default: until ^C."`
}

// Run does it: frames pass through this process.
func (c *testbedDelayCommand) Run() error {
	tb, namespace, err := openPlace(c.Name, c.Place)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	if c.For < 0 {
		return config.Mistakef("--for=%v is not allowed: want more than 0s", c.For)
	}
	if c.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.For)
		defer cancel()
	}
	return tb.Delay(ctx, namespace, c.Time, nil)
}

// testbedIGMPCommand is the command line of `mcast-lab testbed fault igmp`.
type testbedIGMPCommand struct {
	testbedPlace
	State string `arg:"" enum:"aged,asked" help:"aged: the switch forgets the groups and hears no report; asked: it asks again."`
}

// Run sets it.
func (c *testbedIGMPCommand) Run() error {
	return c.each(func(tb *testbed.Testbed, namespace string) error { return tb.SetAged(namespace, c.State == "aged") })
}

// testbedFreezeCommand is the command line of `mcast-lab testbed fault freeze`.
type testbedFreezeCommand struct {
	testbedPlace
	Time time.Duration `arg:"" help:"Such as 2s."`
}

// Run does it, and wakes them, also when a signal ends it.
func (c *testbedFreezeCommand) Run() error {
	if c.Time <= 0 {
		return config.Mistakef("%v is not allowed: want a time such as 2s", c.Time)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	return c.each(func(tb *testbed.Testbed, namespace string) error {
		n, err := tb.Signal(namespace, unix.SIGSTOP)
		if err != nil || n == 0 {
			return errors.Join(err, nothingRuns(n, namespace))
		}
		pause(ctx, c.Time)
		_, err = tb.Signal(namespace, unix.SIGCONT)
		return err
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// nothingRuns is an error if there are no processes: a fault that does nothing shows nothing.
func nothingRuns(processes int, namespace string) error {
	if processes > 0 {
		return nil
	}
	return fmt.Errorf("nothing runs in %s", namespace)
}

// testbedDescriptorsCommand is the command line of `mcast-lab testbed fault descriptors`.
type testbedDescriptorsCommand struct {
	testbedPlace
	Most string `arg:"" help:"A number, 0 to refuse every new one; own is each process's hard limit."`
}

// Run sets it.
func (c *testbedDescriptorsCommand) Run() error {
	most := -1
	if c.Most != "own" {
		n, err := strconv.ParseUint(c.Most, 10, 20)
		if err != nil {
			return config.Mistakef("%q is not allowed: want a number of descriptors from 0 to %d, or own", c.Most, 1<<20-1)
		}
		most = int(n) // 20 bits
	}
	return c.each(func(tb *testbed.Testbed, namespace string) error {
		n, err := tb.SetDescriptors(namespace, most)
		if err != nil {
			return err
		}
		return nothingRuns(n, namespace)
	})
}

// testbedHealCommand is the command line of `mcast-lab testbed fault heal`.
type testbedHealCommand struct{ testbedName }

// Run ends them.
func (c *testbedHealCommand) Run() error {
	tb, err := testbed.Open(c.Name)
	if err != nil {
		return err
	}
	return tb.Heal()
}

// writeFaults lists the faults of a place; own is the loss that it has always.
func writeFaults(w *strings.Builder, f testbed.Faults, own testbed.Loss) {
	for _, fault := range []struct {
		is   bool
		text string
	}{
		{f.Down, "its link is down"},
		{f.InterfaceDown, "its eth0 is down"},
		{f.Loss != own, "its link loses " + f.Loss.String()},
		{f.MTU != 0, fmt.Sprintf("the switch's port has an MTU of %d", f.MTU)},
		{f.Rate != 0, "its link has a rate of " + config.FormatRate(f.Rate)},
		{f.Aged, "the switch has forgotten its groups"},
	} {
		if fault.is {
			fmt.Fprintf(w, "  %s: %s\n", f.Place, fault.text)
		}
	}
}
