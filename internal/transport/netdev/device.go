// Package netdev lists the network interfaces that an NCCL plugin offers as devices.
package netdev

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// GuessedSpeed stands, in Mbit/s, for a speed that the kernel does not know, as for virtual interfaces (lo, veth,
// bridge, virtio). NCCL's own Socket transport guesses the same (src/transport/net_socket.cc, v2.30.7).
const GuessedSpeed = 10000

// Device is an interface that is up and has an address.
type Device struct {
	Name      string
	Addr      netip.Addr // the first of Addresses
	SpeedMbps int        // as the driver says, or GuessedSpeed
	// PCIPath: real path in sysfs of the PCI function, that of the interface below for a VLAN; "" if there is none, or
	// several
	PCIPath string
	GUID    uint64 // of host, interface name and MAC: the same in all processes of a host
}

// Devices returns this host's devices, the one of the default route first and the others by index. If name is not
// empty, it returns that one alone, of any kind. Only interfaces that have an address of the version count.
//
// Without a name only interfaces are listed by which other hosts can be
// expected to reach this one, for NCCL spreads its connections over all devices
// and does not try another when one leads nowhere: the interface of the default
// route, and those with hardware below them and an address that is not
// link-local. Only if there is none, it is the virtual and link-local ones
// (docker0, veth, tun, a BMC's USB); only if there are none either, loopback.
//
// The error says which interfaces there are and why they do not do.
func Devices(name string, v Version) ([]Device, error) {
	h, err := thisHost(v)
	if err != nil {
		return nil, err
	}
	return h.devices(name)
}

// host is what the devices are made from.
type host struct {
	name       string // hostname
	sysfs      string // mount point, /sys
	version    Version
	interfaces []iface
	defaults   []Route // the default routes
}

func thisHost(v Version) (host, error) {
	h := host{sysfs: "/sys", version: v, defaults: defaultRoutes(v)}
	h.name, _ = os.Hostname() // the GUID does without
	var err error
	h.interfaces, err = links(v, h.defaults)
	return h, err
}

// links returns all interfaces, with their addresses of a version. The source address of a default route is an address
// of the interface by which it leaves, too, whichever has it: routers lead it there.
func links(v Version, routes []Route) (found []iface, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("netdev: list interfaces: %w", err)
	}
	fleeting := temporary()
	for i := range all {
		l := linkOf(&all[i], v, fleeting)
		l.lend(routes)
		found = append(found, l)
	}
	return found, nil
}

// lend gives an interface the source addresses of default routes by it that other interfaces have.
func (l *iface) lend(routes []Route) {
	for _, from := range sources(routes, l.Index) {
		if from.IsValid() && !slices.Contains(l.all, from) {
			l.all = append(l.all, from)
			l.addrs = append(l.addrs, from)
			l.nets = append(l.nets, netip.PrefixFrom(from, from.BitLen()))
		}
	}
}

func (h host) devices(name string) ([]Device, error) {
	// The best class that has any interface is listed, and no other.
	var classes [lastClass + 1][]iface
	var why []string
	for _, l := range h.interfaces {
		if name != "" && l.Name != name {
			continue
		}
		if err := h.usable(l, name != ""); err != nil {
			why = append(why, err.Error())
			continue
		}
		c := h.classOf(l)
		classes[c] = append(classes[c], l)
	}
	for _, links := range classes {
		if len(links) == 0 {
			continue
		}
		slices.SortFunc(links, func(a, b iface) int {
			return cmp.Or(h.distance(a)-h.distance(b), cmp.Compare(a.Index, b.Index))
		})
		found := make([]Device, len(links))
		for i, l := range links {
			found[i] = h.device(l)
		}
		return found, nil
	}
	switch {
	case len(why) > 0:
		return nil, fmt.Errorf("netdev: %s", strings.Join(why, "; "))
	case name != "":
		return nil, fmt.Errorf("netdev: there is no interface %q (have %s)", name, h.names())
	}
	return nil, fmt.Errorf("netdev: this host has no network interface")
}

// usable says why an interface cannot be a device. Each that is up has an IPv6 address of its link,
// a container's end of a cable too: that counts where there is hardware, or where it is asked for.
func (h host) usable(l iface, asked bool) error {
	switch {
	case l.Flags&net.FlagUp == 0:
		return fmt.Errorf("interface %s is down (ip link set %s up)", l.Name, l.Name)
	case l.Flags&net.FlagRunning == 0:
		return fmt.Errorf("interface %s has no carrier", l.Name)
	case len(l.addrs) == 0 || !asked && !slices.ContainsFunc(l.addrs, reaches) && !h.hardware(l.Name):
		return fmt.Errorf("interface %s has no %s", l.Name, h.version.address())
	}
	return nil
}

// The classes of interfaces, the best first.
const (
	reachable = iota // of the default route, or hardware with an address of more than the link
	local            // virtual or link-local
	loopback
	lastClass = loopback
)

func (h host) classOf(l iface) int {
	switch {
	case l.Flags&net.FlagLoopback != 0:
		return loopback
	case h.distance(l) == 0, h.hardware(l.Name) && !h.addr(l).IsLinkLocalUnicast():
		return reachable
	}
	return local
}

// distance is 0 for the interface of the default route and 1 for any other.
func (h host) distance(l iface) int {
	if len(h.defaults) > 0 && h.defaults[0].Index == l.Index {
		return 0
	}
	return 1
}

// addr is the first of an interface's Addresses.
func (h host) addr(l iface) netip.Addr { return l.best(sources(h.defaults, l.Index)...)[0] }

func (h host) device(l iface) Device {
	speed, _ := h.speed(l.Name)
	return Device{Name: l.Name, Addr: h.addr(l), SpeedMbps: speed, PCIPath: h.pciPath(l.Name), GUID: h.guid(l)}
}

// guid tells apart interfaces that share a MAC, such as a VLAN and the interface below it, and hosts that have
// containers with the same MACs.
func (h host) guid(l iface) uint64 {
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%s %s %s", h.name, l.Name, l.HardwareAddr)
	return sum.Sum64()
}

func (h host) names() string {
	if len(h.interfaces) == 0 {
		return "none"
	}
	names := make([]string, len(h.interfaces))
	for i, l := range h.interfaces {
		names[i] = l.Name
	}
	return strings.Join(names, " ")
}
