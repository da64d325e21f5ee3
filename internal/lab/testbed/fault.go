package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// A place is a host or node, by its namespace; a fault is of its link, its
// interface, or its port at the switch.

// SetLoss makes the link of a place lose what l says; a share of 0 ends that. A lost packet has
// used the link. Where links have no rate, a packet may be a whole train of segments.
func (t *Testbed) SetLoss(place string, l Loss) error {
	if err := l.Check(); err != nil {
		return err
	}
	return t.link(place, func(switches, in *inside, s station) error {
		return t.layout.family.setLoss(switches.ns, in.ns, s.name, l)
	})
}

// SetLosses makes the links of all hosts lose what l says. It leaves links alone that do so
// already.
func (t *Testbed) SetLosses(l Loss) error {
	if err := l.Check(); err != nil {
		return err
	}
	faults, err := t.Faults()
	if err != nil {
		return err
	}
	for h, host := range t.layout.hosts {
		if faults[h].Loss != l {
			if err := t.SetLoss(host.Namespace, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetLink takes the link of a place down, as if its cable were pulled, or up. The
// place keeps its addresses and routes. Once up, the switch asks for its groups;
// that takes a second or two.
func (t *Testbed) SetLink(place string, up bool) error {
	return t.link(place, func(switches, in *inside, s station) error {
		link, err := switches.LinkByName(s.name)
		if err != nil {
			return err
		}
		if !up {
			return switches.LinkSetDown(link)
		}
		if err := switches.LinkSetUp(link); err != nil {
			return err
		}
		return awaitLink(switches, in, s)
	})
}

// awaitLink waits for a link to work, unless one of its ends is down.
func awaitLink(switches, in *inside, s station) error {
	port, err := switches.LinkByName(s.name)
	if err != nil {
		return err
	}
	eth0, err := in.LinkByName("eth0")
	if err != nil {
		return err
	}
	if (port.Attrs().Flags & eth0.Attrs().Flags & net.FlagUp) == 0 {
		return nil
	}
	return awaitCarriers(in.Handle)
}

// Flap takes the link of a place down and up several times. It leaves it up, also when ctx ends.
func (t *Testbed) Flap(ctx context.Context, place string, times int, down, up time.Duration) error {
	for range times {
		if err := t.SetLink(place, false); err != nil {
			return err
		}
		sleep(ctx, down)
		if err := t.SetLink(place, true); err != nil {
			return err
		}
		sleep(ctx, up)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// SetMTU sets the MTU of the switch's port to a place: longer packets vanish
// there in both directions, and nobody is told. 0 is the testbed's own. Some links need
// a rate for it, its own or trunks, or else what travels is trains of segments, which pass.
func (t *Testbed) SetMTU(place string, mtu int) error {
	own := t.Spec().MTU
	if mtu == 0 {
		mtu = own
	}
	if mtu < minMTU || mtu > own {
		return config.Mistakef("testbed %s: a port's MTU of %d: want %d to %d, the MTU of all links", t.Name(), mtu, minMTU,
			own)
	}
	if !t.Spec().framed() {
		return config.Mistakef("testbed %s: a port's MTU means nothing where no links have a rate, since trains of "+
			"segments pass: bring it up with --rate or --trunk", t.Name())
	}
	return t.link(place, func(switches, _ *inside, s station) error {
		link, err := switches.LinkByName(s.name)
		if err != nil {
			return err
		}
		return switches.LinkSetMTU(link, mtu)
	})
}

// minMTU is the least that IPv4 asks for and links take.
const minMTU = 68

// SetRate gives the link of a host another rate, in both directions, as if it had
// been negotiated anew. 0 is the testbed's own.
func (t *Testbed) SetRate(place string, rate float64) error {
	spec := t.Spec()
	if spec.Rate == 0 {
		return fmt.Errorf("testbed %s: its links have no rate: bring it up with --rate", t.Name())
	}
	if rate != 0 {
		spec.Rate, spec.Burst = rate, 0
	}
	if err := spec.Check(); err != nil {
		return err
	}
	return t.link(place, func(switches, in *inside, s station) error {
		if !s.host {
			return errors.New("the link of a switch's host has no rate")
		}
		port, err := switches.LinkByName(s.name)
		if err != nil {
			return err
		}
		eth0, err := in.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(spec.reshape(switches.Handle, port.Attrs().Index), spec.reshape(in.Handle, eth0.Attrs().Index))
	})
}

const agedTable = "aged-"

// SetAged makes the switch forget the groups of a place and hear nothing of them
// any more, as one does that nobody queries; false has it asked again.
func (t *Testbed) SetAged(place string, aged bool) error {
	return t.link(place, func(switches, _ *inside, s station) error {
		c, err := nftables.New(nftables.WithNetNSFd(int(switches.ns)))
		if err != nil {
			return err
		}
		dropTable(c, nftables.TableFamilyNetdev, agedTable+s.name)
		if aged {
			ingress(c, agedTable+s.name, s.name, t.layout.family.carries(expr.CmpOpEq, t.layout.family.membership)...)
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("nftables: IGMP of %s: %w", s.name, err)
		}
		bridge, err := switches.LinkByName(s.bridge)
		if err != nil {
			return err
		}
		port, err := switches.LinkByName(s.name)
		if err != nil {
			return err
		}
		r, err := newRaw(switches.ns)
		if err != nil {
			return err
		}
		defer r.close()
		if !aged {
			return r.ask(bridge.Attrs().Index)
		}
		for g := range Groups {
			if err := r.forgetGroup(bridge.Attrs().Index, port.Attrs().Index, t.layout.family.nth(g)); err != nil {
				return err
			}
		}
		return nil
	})
}

// endDelays removes what killed processes have left that delayed places.
func (t *Testbed) endDelays() error {
	sw, err := enter(t.layout.namespace(switches))
	if err != nil {
		return err
	}
	defer sw.close()
	links, err := sw.LinkList()
	if err != nil {
		return err
	}
	for _, s := range t.layout.stations {
		if slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().Name == asideName+s.name }) {
			if err := sw.undelay(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// link calls f with both ends of a place's link.
func (t *Testbed) link(place string, f func(switches, in *inside, s station) error) error {
	i := slices.IndexFunc(t.layout.stations, func(s station) bool { return t.layout.namespace(s.name) == place })
	if i < 0 {
		return config.Mistakef("testbed %s: %q is neither one of its hosts nor the host of a switch: want a namespace such "+
			"as %s", t.Name(), place, t.layout.hosts[0].Namespace)
	}
	sw, err := enter(t.layout.namespace(switches))
	if err != nil {
		return err
	}
	defer sw.close()
	in, err := enter(place)
	if err != nil {
		return err
	}
	defer in.close()
	if err := f(sw, in, t.layout.stations[i]); err != nil {
		return fmt.Errorf("testbed %s: %s: %w", t.Name(), t.layout.stations[i].name, err)
	}
	return nil
}

// Faults are those of a place that the kernel still knows of.
type Faults struct {
	Place         string  `json:"place"` // h0, n0
	Loss          Loss    `json:"loss"`
	Down          bool    `json:"down"`           // its link
	InterfaceDown bool    `json:"interface_down"` // its own eth0
	MTU           int     `json:"mtu"`            // of the switch's port, where it is not the testbed's; else 0
	Rate          float64 `json:"rate"`           // likewise
	Aged          bool    `json:"aged"`           // the switch has forgotten its groups
}

// Faults returns those of all hosts by index, and then those of all nodes.
func (t *Testbed) Faults() ([]Faults, error) {
	sw, err := enter(t.layout.namespace(switches))
	if err != nil {
		return nil, err
	}
	defer sw.close()
	out, err := losses(sw.ns)
	if err != nil {
		return nil, err
	}
	links, err := sw.LinkList()
	if err != nil {
		return nil, err
	}
	ports := map[string]*netlink.LinkAttrs{}
	for _, l := range links {
		ports[l.Attrs().Name] = l.Attrs()
	}
	aged, err := agedPorts(sw)
	if err != nil {
		return nil, err
	}
	var all []Faults
	for _, s := range t.layout.stations {
		f := Faults{Place: s.name, Loss: out[s.name].loss, Aged: aged[s.name], Down: true}
		if port := ports[s.name]; port != nil {
			f.Down = port.Flags&net.FlagUp == 0
			if port.MTU != t.Spec().MTU {
				f.MTU = port.MTU
			}
			if s.host {
				if f.Rate, err = t.otherRate(sw, port.Index); err != nil {
					return nil, err
				}
			}
		}
		if err := f.inside(t.layout.namespace(s.name)); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// inside reads the faults that a place itself shows.
func (f *Faults) inside(namespace string) error {
	in, err := enter(namespace)
	if err != nil {
		return err
	}
	defer in.close()
	lost, err := losses(in.ns)
	if err != nil {
		return err
	}
	if l, is := lost["eth0"]; is {
		f.Loss = l.loss
	}
	eth0, err := in.LinkByName("eth0")
	if err != nil {
		return err
	}
	f.InterfaceDown = eth0.Attrs().Flags&net.FlagUp == 0
	return nil
}

// otherRate returns the rate of a port, if it is not the testbed's.
func (t *Testbed) otherRate(sw *inside, port int) (float64, error) {
	all, err := sw.QdiscList(nil)
	if err != nil {
		return 0, err
	}
	for _, q := range all {
		if tbf, is := q.(*netlink.Tbf); is && tbf.LinkIndex == port && tbf.Rate != uint64(t.Spec().Rate/8) {
			return float64(tbf.Rate) * 8, nil
		}
	}
	return 0, nil
}

// agedPorts returns the ports that the switch hears no group members from.
func agedPorts(sw *inside) (map[string]bool, error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(sw.ns)))
	if err != nil {
		return nil, err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyNetdev)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	aged := map[string]bool{}
	for _, t := range tables {
		if port, is := strings.CutPrefix(t.Name, agedTable); is {
			aged[port] = true
		}
	}
	return aged, nil
}

// Heal ends all faults, but for the loss that the Spec asks for.
func (t *Testbed) Heal() error {
	if err := t.endDelays(); err != nil {
		return err
	}
	faults, err := t.Faults()
	if err != nil {
		return err
	}
	for i, f := range faults {
		place := t.layout.namespace(f.Place)
		own := Loss{}
		if i < len(t.layout.hosts) {
			own.Share = t.Spec().Loss
		}
		for _, mend := range []struct {
			broken bool
			mend   func() error
		}{
			{f.InterfaceDown, func() error { return t.SetInterface(place, true) }},
			{f.Down, func() error { return t.SetLink(place, true) }},
			{f.Loss != own, func() error { return t.SetLoss(place, own) }},
			{f.MTU != 0, func() error { return t.SetMTU(place, 0) }},
			{f.Rate != 0, func() error { return t.SetRate(place, 0) }},
			{f.Aged, func() error { return t.SetAged(place, false) }},
		} {
			if mend.broken {
				if err := mend.mend(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
