package testbed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
)

// builder builds what a layout says, in namespaces that do not exist yet.
type builder struct {
	*layout
	net   *inside // the switches
	raw   raw
	ports map[string]int // interface index of each bridge and port

	mu    sync.Mutex // of done and tell
	done  int
	total int
	tell  func(done, total int)
}

// step is a part of the work that makes progress.
func (b *builder) step() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done++
	if b.tell != nil {
		b.tell(b.done, b.total)
	}
}

// all calls f for every item, a few at a time: the kernel does most of the work
// one item after another anyway. It stops early when ctx ends.
func all[T any](ctx context.Context, items []T, f func(T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0) + 1)
	for _, item := range items {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			return f(item)
		})
	}
	return g.Wait()
}

// build makes everything. If it fails, remove removes all that it has made.
func build(ctx context.Context, y *layout, tell func(done, total int)) error {
	b := &builder{layout: y, ports: map[string]int{}, tell: tell}
	names := y.namespaces()
	if err := prepareRoot(); err != nil {
		return err
	}
	b.total = len(names) + len(y.bridges()) + 2*len(y.stations) + len(y.uplinks) + len(y.bridges())
	if err := all(ctx, names,
		func(n string) error { defer b.step(); return b.family.makeNamespace(n, n == names[0]) }); err != nil {
		return err
	}
	var err error
	if b.net, err = enter(names[0]); err != nil {
		return err
	}
	defer b.net.close()
	if b.raw, err = newRaw(b.net.ns); err != nil {
		return err
	}
	defer b.raw.close()
	if err := all(ctx, y.bridges(), b.bridge); err != nil {
		return err
	}
	ready := time.Now().Add(2 * responseTime) // then the queriers trust their tables
	links, err := b.net.LinkList()
	if err != nil {
		return err
	}
	b.index(links)
	if err := all(ctx, y.uplinks, b.uplink); err != nil {
		return err
	}
	if err := all(ctx, y.stations, b.station); err != nil {
		return err
	}
	if links, err = b.net.LinkList(); err != nil {
		return err
	}
	b.index(links)
	if err := all(ctx, y.uplinks, b.trunk); err != nil {
		return err
	}
	if err := all(ctx, y.bridges(), b.tables); err != nil {
		return err
	}
	if err := all(ctx, y.stations, b.finish); err != nil {
		return err
	}
	if err := awaitCarriers(b.net.Handle); err != nil {
		return err
	}
	time.Sleep(time.Until(ready))
	return ctx.Err()
}

func (b *builder) index(links []netlink.Link) {
	for _, l := range links {
		b.ports[l.Attrs().Name] = l.Attrs().Index
	}
}

// bridge makes a switch that knows members by IGMP, or MLD.
func (b *builder) bridge(name string) error {
	defer b.step()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, b.spec.MTU
	on := true
	link := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &on}
	err := b.net.LinkAdd(link)
	if err == nil {
		err = b.raw.setQuerier(link.Index)
	}
	if err == nil && b.spec.IPv6 { // an MLD querier sends from an address of the link
		err = onThread(func() error {
			return errors.Join(netns.Set(b.net.ns), setting{"ipv6/conf/" + name + "/disable_ipv6", "0"}.write())
		})
	}
	if err == nil {
		err = b.net.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	return nil
}

// uplink joins a leaf and a spine.
func (b *builder) uplink(u uplink) error {
	defer b.step()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = u.up(), b.spec.MTU
	err := b.net.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: u.down()})
	if err == nil {
		err = b.family.keepMembership(b.net.ns, u)
	}
	if err == nil {
		err = b.port(u.up(), leafName(u.leaf), portRules{flood: u.floods()})
	}
	if err == nil {
		err = b.port(u.down(), spineName(u.spine), portRules{flood: u.floods()})
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", u.up(), err)
	}
	return nil
}

// trunk gives a link between a leaf and a spine its rate.
func (b *builder) trunk(u uplink) error {
	trunks := b.spec.trunks()
	for _, port := range []string{u.up(), u.down()} {
		if err := trunks.shape(b.net.Handle, b.ports[port]); err != nil {
			return fmt.Errorf("port %s: rate: %w", port, err)
		}
	}
	return nil
}

// port makes an interface a port of a bridge and takes it up.
func (b *builder) port(name, bridge string, rules portRules) error {
	link, err := b.net.LinkByName(name)
	if err != nil {
		return err
	}
	if err := b.net.LinkSetMasterByIndex(link, b.ports[bridge]); err != nil {
		return err
	}
	if err := b.raw.setPort(link.Attrs().Index, rules); err != nil {
		return err
	}
	return b.net.LinkSetUp(link)
}

// station joins a host or node to its switch.
func (b *builder) station(s station) error {
	defer b.step()
	in, err := enter(b.namespace(s.name))
	if err != nil {
		return err
	}
	defer in.close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = s.name, b.spec.MTU
	err = b.net.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: s.mac, PeerNamespace: netlink.NsFd(in.ns),
	})
	if err == nil {
		err = b.interfaces(in, s)
	}
	if err == nil {
		err = b.port(s.name, s.bridge, portRules{flood: true, host: true})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", b.namespace(s.name), err)
	}
	return nil
}

// interfaces configures lo and eth0 of a host or node.
func (b *builder) interfaces(in *inside, s station) error {
	lo, err := in.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := in.LinkSetUp(lo); err != nil {
		return err
	}
	if err := in.LinkSetMulticastOn(lo); err != nil {
		return err
	}
	eth0, err := in.LinkByName("eth0")
	if err != nil {
		return err
	}
	if b.spec.framed() {
		if err := in.LinkSetGSOMaxSegs(eth0, 1); err != nil {
			return err
		}
	}
	if err := in.AddrAdd(eth0, b.address(s)); err != nil {
		return err
	}
	return in.LinkSetUp(eth0)
}

// tables fills a bridge: the way to every station, and where groups go.
func (b *builder) tables(bridge string) error {
	defer b.step()
	for _, s := range b.stations {
		if port := b.forward(bridge, s); port != "" {
			if err := addForward(b.net.Handle, b.ports[port], s); err != nil {
				return fmt.Errorf("%s: way to %s: %w", bridge, s.name, err)
			}
		}
	}
	if b.spec.Spines == 0 {
		return nil
	}
	for g := range Groups {
		for _, port := range b.tree(bridge, g) {
			if err := b.raw.addGroup(b.ports[bridge], b.ports[port], b.family.nth(g)); err != nil {
				return fmt.Errorf("%s: port %s: %w", bridge, port, err)
			}
		}
	}
	return nil
}

// finish gives a host or node its route, neighbours, rate and loss.
func (b *builder) finish(s station) error {
	defer b.step()
	in, err := enter(b.namespace(s.name))
	if err != nil {
		return err
	}
	defer in.close()
	eth0, err := in.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("%s: %w", b.namespace(s.name), err)
	}
	if err := b.routes(in, s, eth0.Attrs().Index); err != nil {
		return fmt.Errorf("%s: %w", b.namespace(s.name), err)
	}
	if err := awaitCarriers(in.Handle); err != nil {
		return fmt.Errorf("%s: %w", b.namespace(s.name), err)
	}
	if !s.host {
		return nil
	}
	if err := b.spec.shape(in.Handle, eth0.Attrs().Index); err != nil {
		return fmt.Errorf("%s: rate: %w", b.namespace(s.name), err)
	}
	if err := b.spec.shape(b.net.Handle, b.ports[s.name]); err != nil {
		return fmt.Errorf("port %s: rate: %w", s.name, err)
	}
	if b.spec.Loss == 0 {
		return nil
	}
	return b.family.setLoss(b.net.ns, in.ns, s.name, Loss{Share: b.spec.Loss})
}
