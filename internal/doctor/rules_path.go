package doctor

import (
	"fmt"
	"strings"
)

// pathRules are about the size of packets.
var pathRules = []rule{
	onLink("mtu-below", mtuBelow),
	onLink("mtu-of-route", mtuOfRoute),
	onLink("mtu-tiny", func(_ *Facts, l *Link) []Finding {
		return one(l.MTU < 1280, Warning, l.Name, fmt.Sprintf("the MTU is %d", l.MTU),
			"chunks are small, and headers take a good part of the link",
			"sudo ip link set "+l.Name+" mtu 1500, if the network carries that")
	}),
	onLink("mtu-could-be-larger", func(_ *Facts, l *Link) []Finding {
		return one(l.Hardware && l.Mbps >= 10000 && l.MTU <= 1500, Note, l.Name,
			fmt.Sprintf("the MTU is %d at %d Mbit/s", l.MTU, l.Mbps),
			"with larger packets a core moves several times more",
			"sudo ip link set "+l.Name+" mtu 9000 on all hosts, if all switch ports carry that")
	}),
}

// mtuBelow finds an interface on which the chosen one lies that carries less.
func mtuBelow(f *Facts, l *Link) (found []Finding) {
	seen, queue := map[string]bool{l.Name: true}, l.Below
	for len(queue) > 0 {
		below := f.Link(queue[0])
		queue = queue[1:]
		if below == nil || seen[below.Name] {
			continue
		}
		seen[below.Name] = true
		queue = append(queue, below.Below...)
		found = append(found, one(below.MTU < l.MTU, Fault, l.Name,
			fmt.Sprintf("the MTU is %d, but %s below it has %d", l.MTU, below.Name, below.MTU),
			"full packets are lost there, small ones pass: a job starts and then stands still or repairs",
			fmt.Sprintf("sudo ip link set %s mtu %d, or sudo ip link set %s mtu %d", below.Name, l.MTU, l.Name,
				below.MTU))...)
	}
	return found
}

// mtuOfRoute finds a route that takes less than its interface.
func mtuOfRoute(f *Facts, l *Link) (found []Finding) {
	for _, r := range f.Routes {
		found = append(found, one(r.Link == l.Name && r.MTU > 0 && r.MTU < l.MTU, Warning, l.Name,
			fmt.Sprintf("the route to %s takes packets of %d bytes, the interface %d", r.To, r.MTU, l.MTU),
			"multicast goes by the interface: if the path takes no more than the route says, it is lost",
			fmt.Sprintf("sudo ip link set %s mtu %d, or take mtu from the route: ip route show dev %s", l.Name, r.MTU,
				l.Name))...)
	}
	return found
}

// firewallRules are about what this host itself drops.
var firewallRules = []rule{
	{"firewall-drops", firewallDrops},
	{"firewall-unclear", func(f *Facts) []Finding {
		var what, chains []string
		for _, p := range f.Firewall.Paths {
			if p.Verdict == Unclear {
				what, chains = append(what, p.What), append(chains, p.By)
			}
		}
		return one(len(what) > 0, Note, "firewall",
			"whether it drops this hangs on rules that are not understood here: "+strings.Join(what, "; "),
			"dropped packets come by repair, or not at all", "sudo nft list chain "+orWord(chains, ""))
	}},
}

// firewallDrops says what the rules of this host drop, and the rule that lets it pass.
func firewallDrops(f *Facts) (found []Finding) {
	for _, p := range f.Firewall.Paths {
		if p.Verdict != Dropped {
			continue
		}
		finding := Finding{
			Severity: Fault,
			Subject:  p.By,
			What:     "the firewall of this host drops " + p.What,
		}
		match := ""
		switch {
		case strings.HasPrefix(p.What, "UDP"):
			finding.Why = "Allgathers and Broadcasts go from rank to rank over TCP, no faster than a ring"
			match = "ip daddr 239.192.0.0/14 udp dport 10000-29999"
			if group, port := f.Settings.Set["MCAST_GROUP"], f.Settings.Set["MCAST_PORT"]; group != "" &&
				port != "" {
				match = fmt.Sprintf("ip daddr %s udp dport %s", group, port)
			}
		case strings.HasPrefix(p.What, "IGMP"):
			finding.Why = "switches do not learn, or forget after some minutes, that this host is in a group"
			match = "ip protocol igmp"
			if strings.Contains(p.What, "queries") {
				finding.Severity = Warning
			}
		default:
			finding.Why = "ranks meet, repair and reduce over TCP, at ports that the kernel chooses"
			direction := "saddr"
			if strings.Contains(p.What, "TCP to") {
				direction = "daddr"
			}
			match = fmt.Sprintf("ip %s %s meta l4proto tcp", direction, f.network())
		}
		finding.Remedy = fmt.Sprintf("sudo nft insert rule %s %s accept", p.By, match)
		found = append(found, finding)
	}
	return found
}
