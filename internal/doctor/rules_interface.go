package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// interfaceRules are about whether the interface is the right one, and whether it works.
var interfaceRules = []rule{
	{"interface-missing", func(f *Facts) []Finding {
		return one(f.Chosen.Error != "" && f.ChosenLink() == nil && !f.lacksFamily(), Fault, "MCAST_IFACE", f.Chosen.Error,
			"without an interface there is no network", "export MCAST_IFACE="+orWord(f.usable(), "NAME"))
	}},
	{"no-family", func(f *Facts) []Finding {
		return one(f.lacksFamily(), Fault, cmp.Or(f.Chosen.Name, f.Host), f.Chosen.Error, "a rank cannot open its sockets",
			"unset MCAST_FAMILY, MCAST_GROUP and NCCL_SOCKET_FAMILY;"+
				" or give the interface an address of that version (ip addr add)")
	}},
	onLink("interface-down", func(_ *Facts, l *Link) []Finding {
		return one(!l.Up, Fault, l.Name, "the interface is down", "nothing is sent or received",
			"sudo ip link set "+l.Name+" up")
	}),
	onLink("no-carrier", func(_ *Facts, l *Link) []Finding {
		return one(l.Up && !l.Loopback && !l.Carrier, Fault, l.Name, "the interface has no carrier",
			"nothing is sent or received", "look at cable and switch port: ethtool "+l.Name)
	}),
	onLink("multicast-off", func(_ *Facts, l *Link) []Finding {
		return one(!l.Multicast && !l.Loopback, Warning, l.Name,
			"the interface does not do multicast: its flag is off",
			"ranks take a network that all hosts are in and that does, if there is one;"+
				" else they relay over TCP, as fast as a ring",
			"sudo ip link set "+l.Name+" multicast on")
	}),
	{"no-address", noAddress},
	onLink("ipv6-only", onlyIPv6),
	{"interface-ambiguous", ambiguous},
	{"no-network", func(f *Facts) []Finding {
		return one(f.Chosen.Why == ByDefault && len(f.usable()) == 0 && !f.hasIPv6(), Warning, f.Host,
			"this host has loopback alone", "ranks of this host can work together, and no others",
			"bring an interface up: ip addr show")
	}},
	onLink("no-route", noRoute),
	{"same-address", sameAddress},
	onLink("same-network", sameNetwork),
	onLink("faster-interface", faster),
	onLink("virtual-interface", virtual),
	onLink("container-network", func(_ *Facts, l *Link) []Finding {
		return one(l.Kind == "veth", Note, l.Name,
			"the interface is one end of a virtual cable, as containers and pods have it",
			"multicast mostly stays on the machine, or is not carried at all",
			"docker run --network=host; in Kubernetes hostNetwork: true, or macvlan and MCAST_IFACE")
	}),
}

// lacksFamily reports whether the settings ask for a version of IP for which the host has no address.
func (f *Facts) lacksFamily() bool {
	l := f.ChosenLink()
	if l == nil {
		return strings.HasPrefix(f.Chosen.Error, "no interface has an IPv")
	}
	return strings.Contains(f.Chosen.Error, " has no IPv6 address")
}

func (f *Facts) hasIPv6() bool {
	return slices.ContainsFunc(f.Links, func(l Link) bool { return l.Up && l.global6() != "" })
}

// onlyIPv6 notes the consequences where an interface has addresses of IPv6 alone.
func onlyIPv6(f *Facts, l *Link) []Finding {
	return one(f.Family() == batch.IPv6 && len(l.IPv4) == 0 && !l.Loopback, Note, l.Name,
		"it has IPv6 alone",
		"ranks meet and multicast over IPv6, and switches learn by MLD who listens: they may snoop that and not IGMP",
		"if other hosts have no IPv6, an address: sudo ip addr add 10.0.0.1/24 dev "+l.Name)
}

// noAddress finds an interface, or a host, that has no address which the library takes.
func noAddress(f *Facts) []Finding {
	l := f.ChosenLink()
	if l == nil || l.Loopback {
		i := slices.IndexFunc(f.Links, func(l Link) bool { return l.Up && l.global6() != "" })
		if i < 0 || len(f.usable()) > 0 {
			return nil
		}
		l = &f.Links[i]
		return one(true, Fault, l.Name, "it has only IPv6 ("+l.global6()+"), and is not taken",
			"a rank tells the others an address of loopback, where they cannot reach it",
			"export MCAST_IFACE="+l.Name+"; or a default route by it: sudo ip -6 route add default dev "+l.Name)
	}
	what := "the interface has no address"
	if six := l.global6(); six != "" {
		what = "the interface has no IPv4 address, only IPv6 (" + six + ")"
	}
	return one(f.Chosen.Error != "" && len(l.IPv4) == 0, Fault, l.Name, what, "a rank cannot open its sockets",
		"sudo ip addr add 10.0.0.1/24 dev "+l.Name+", with another number on each host; or unset MCAST_FAMILY")
}

// ambiguous finds a host without a default route that has several interfaces.
func ambiguous(f *Facts) []Finding {
	names := f.usable()
	return one(f.Chosen.Why == ByDefault && len(names) > 0, Fault, f.Host,
		"there is no default route, and there are several interfaces: "+strings.Join(names, ", "),
		"a rank tells the others 127.0.0.1, where they cannot reach it",
		"export MCAST_IFACE="+orWord(names, "NAME")+" (it may differ from host to host)")
}

// noRoute finds an interface by which no address can be reached.
func noRoute(f *Facts, l *Link) []Finding {
	if l.Loopback || !l.Up || len(l.IPv4) == 0 {
		return nil
	}
	has := slices.ContainsFunc(f.Routes, func(r Route) bool { return r.Link == l.Name })
	remedy := ""
	if p, err := netip.ParsePrefix(l.IPv4[0]); err == nil && p.IsSingleIP() {
		const usual = 24
		remedy = fmt.Sprintf("give the address the length of its network: sudo ip addr add %v dev %s",
			netip.PrefixFrom(p.Addr(), usual), l.Name)
	} else if err == nil {
		remedy = fmt.Sprintf("sudo ip route add %v dev %s", p.Masked(), l.Name)
	}
	return one(!has, Fault, l.Name,
		"no route leads through the interface with the address "+l.IPv4[0],
		"other ranks cannot be reached over TCP, and their multicast may be refused", remedy)
}

// sameAddress finds an address that two interfaces have.
func sameAddress(f *Facts) (found []Finding) {
	owner := make(map[netip.Addr]string)
	for _, l := range f.Links {
		for _, p := range l.prefixes() {
			if l.Loopback || p.Addr().IsLinkLocalUnicast() {
				continue
			}
			other, taken := owner[p.Addr()]
			owner[p.Addr()] = l.Name
			found = append(found, one(taken && other != l.Name, Fault, l.Name,
				fmt.Sprintf("%s and %s have the same address, %v", other, l.Name, p.Addr()),
				"chance decides by which one other ranks reach this one",
				fmt.Sprintf("sudo ip addr del %v dev %s", p, l.Name))...)
		}
	}
	return found
}

// sameNetwork finds a second interface in the chosen one's network.
func sameNetwork(f *Facts, chosen *Link) (found []Finding) {
	if chosen.Loopback {
		return nil
	}
	for _, l := range f.Links {
		if l.Name == chosen.Name || !l.Up || len(l.IPv4) == 0 {
			continue
		}
		shared := slices.ContainsFunc(l.prefixes(), func(p netip.Prefix) bool {
			return slices.ContainsFunc(chosen.prefixes(), func(c netip.Prefix) bool {
				return p.Addr().Is4() && p.Masked() == c.Masked() && p.Addr() != c.Addr()
			})
		})
		found = append(found, one(shared, Warning, l.Name,
			fmt.Sprintf("%s and %s are in one network", chosen.Name, l.Name), crowded(f, chosen),
			"bond them, or sudo sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")...)
	}
	return found
}

// crowded says what two interfaces in one network do.
func crowded(f *Facts, chosen *Link) string {
	why := "packets leave by one of them unless MCAST_IFACE names the other," +
		" and either answers for both: links are loaded unevenly"
	if f.Net.RPFilter == 1 {
		why += fmt.Sprintf("; and reverse paths are checked: packets that come by %s are dropped"+
			" if routes lead by the other one", chosen.Name)
	}
	return why
}

// faster finds an interface that is at least twice as fast as the one of the default route.
func faster(f *Facts, l *Link) []Finding {
	if f.Chosen.Why != ByRoute || l.Mbps == 0 {
		return nil
	}
	best := l
	for i := range f.Links {
		if o := &f.Links[i]; o.Hardware && o.Carrier && len(o.IPv4) > 0 && o.Mbps > best.Mbps {
			best = o
		}
	}
	return one(best.Mbps >= 2*l.Mbps, Warning, l.Name,
		fmt.Sprintf("%s has the default route and runs at %d Mbit/s, %s at %d", l.Name, l.Mbps, best.Name,
			best.Mbps),
		"the default route is often a management network; nothing else is used unless it is named",
		"export MCAST_IFACE="+best.Name)
}

// bridgeOf matches the interfaces of containers, virtual machines and tunnels.
var bridgeOf = regexp.MustCompile(
	`^(docker|podman|virbr|lxcbr|lxdbr|cni|br-[0-9a-f]{12}|flannel|cali|vxlan)`,
)

// virtual finds an interface that leads to containers of this host, or into a tunnel.
func virtual(f *Facts, l *Link) []Finding {
	tunnel := slices.Contains([]string{"tun", "tuntap", "wireguard", "vxlan", "gre", "ipip"}, l.Kind)
	return one(tunnel || bridgeOf.MatchString(l.Name), Warning, l.Name,
		fmt.Sprintf("the interface is a container's bridge or a tunnel (%s)", l.Kind),
		"it does not lead to other hosts, or carries no multicast",
		"export MCAST_IFACE="+orWord(
			slices.DeleteFunc(f.usable(), func(n string) bool { return n == l.Name }),
			"NAME",
		))
}
