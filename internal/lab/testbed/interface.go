package testbed

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetInterface takes eth0 of a place down, as `ip link set eth0 down` does, or
// up: routes and neighbours go with it, and come back with it.
func (t *Testbed) SetInterface(place string, up bool) error {
	return t.link(place, func(switches, in *inside, s station) error {
		eth0, err := in.LinkByName("eth0")
		if err != nil {
			return err
		}
		if !up {
			return in.LinkSetDown(eth0)
		}
		if err := in.LinkSetUp(eth0); err != nil {
			return err
		}
		if err := t.layout.routes(in, s, eth0.Attrs().Index); err != nil {
			return err
		}
		return awaitLink(switches, in, s)
	})
}

// RenewAddress takes the address of a place away and gives it back at once, as a DHCP client does
// when its lease has run out.
func (t *Testbed) RenewAddress(place string) error {
	return t.link(place, func(_, in *inside, s station) error {
		eth0, err := in.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := in.AddrDel(eth0, t.layout.address(s)); err != nil {
			return err
		}
		if err := in.AddrAdd(eth0, t.layout.address(s)); err != nil {
			return err
		}
		return t.layout.routes(in, s, eth0.Attrs().Index)
	})
}

// address is what the eth0 of a host or node has, usable at once.
func (y *layout) address(s station) *netlink.Addr {
	at := &netlink.Addr{
		IPNet: &net.IPNet{IP: s.addr.AsSlice(), Mask: net.CIDRMask(y.family.subnet.Bits(), s.addr.BitLen())},
	}
	if s.addr.Is6() {
		at.Flags = unix.IFA_F_NODAD
	}
	return at
}

// routes gives the eth0 of a host or node its default route and all its neighbours.
func (y *layout) routes(in *inside, s station, eth0 int) error {
	everywhere := &net.IPNet{IP: make(net.IP, s.addr.BitLen()/8), Mask: net.CIDRMask(0, s.addr.BitLen())}
	if err := in.RouteReplace(&netlink.Route{LinkIndex: eth0, Dst: everywhere, Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	for _, other := range y.stations {
		if other.name == s.name {
			continue
		}
		if err := in.NeighSet(&netlink.Neigh{LinkIndex: eth0, Family: y.family.domain, State: netlink.NUD_PERMANENT,
			IP: other.addr.AsSlice(), HardwareAddr: other.mac}); err != nil {
			return fmt.Errorf("neighbour %s: %w", other.name, err)
		}
	}
	return nil
}
