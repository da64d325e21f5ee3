package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// jobRules are about what hosts have in common, and the paths between them.
var jobRules = []jobRule{
	{"settings-differ", settingsDiffer},
	{"same-address-on-hosts", sameAddressOnHosts},
	{"networks-differ", networksDiffer},
	{"mtu-differs", func(j *job) []Finding {
		groups := j.differing(func(host int) string {
			if l := j.hosts[host].chosen(); l != nil && !l.Loopback {
				return strconv.Itoa(l.MTU)
			}
			return ""
		})
		return one(groups != nil, Warning, "MTU", "it is "+j.spell(groups),
			"chunks are fitted to the smallest, and switch ports may drop what is larger",
			"the same on all hosts: sudo ip link set IFACE mtu 1500")
	}},
	{"speed-differs", func(j *job) []Finding {
		groups := j.differing(func(host int) string {
			if l := j.hosts[host].chosen(); l != nil && l.Mbps > 0 {
				return strconv.Itoa(l.Mbps) + " Mbit/s"
			}
			return ""
		})
		return one(groups != nil, Warning, "speed", "links run at "+j.spell(groups),
			"the slowest host sets the pace of all",
			"look at cable and switch port of the slow ones, or name other interfaces by MCAST_IFACE")
	}},
	{"nccl-differs", func(j *job) []Finding {
		groups := j.differing(func(host int) string { return j.hosts[host].NCCL.Version })
		return one(groups != nil, Warning, "NCCL", "its version is "+j.spell(groups),
			"ranks with different versions of NCCL may refuse each other", "the same on all hosts")
	}},
	{"unreachable", unreachable},
	{"no-multicast", noMulticast},
	{"mtu-hole", mtuHole},
	{"lossy-path", lossyPath},
	{"slow-path", slowPath},
}

// settingsDiffer compares the variables that ranks must have alike.
func settingsDiffer(j *job) (found []Finding) {
	agreed := make([]map[string]string, len(j.hosts))
	for i := range j.hosts {
		agreed[i] = make(map[string]string)
		s, err := config.Load(func(name string) (string, bool) {
			value, ok := j.hosts[i].Settings.Set[name]
			return value, ok
		}, nil)
		if err != nil {
			continue // which is a finding of that host's
		}
		for _, entry := range strings.Fields(s.Agreed()) {
			name, value, _ := strings.Cut(entry, "=")
			agreed[i][name] = strconv.Quote(value)
		}
	}
	defaults := config.Default()
	for _, entry := range strings.Fields(defaults.Agreed()) {
		name, _, _ := strings.Cut(entry, "=")
		groups := j.differing(func(host int) string { return agreed[host][name] })
		found = append(found, one(groups != nil, Fault, name, "it is "+j.spell(groups),
			"ranks with different values do not join", "the same on all hosts, or unset "+name)...)
	}
	return found
}

// sameAddressOnHosts finds an address by which ranks would reach the wrong host.
func sameAddressOnHosts(j *job) (found []Finding) {
	seen := make(map[string][]int)
	for i := range j.hosts {
		if at := j.hosts[i].Chosen.Address; at != "" {
			if seen[at] = append(seen[at], i); len(seen[at]) == 2 {
				found = append(found, Finding{Subject: at})
			}
		}
	}
	for i := range found {
		f := &found[i]
		hosts := seen[f.Subject]
		first := j.hosts[hosts[0]].Chosen
		f.Severity = Fault
		f.What = fmt.Sprintf("%s have the same address on %s", j.names(hosts), first.Name)
		f.Why = "ranks that connect to one of them reach themselves, or another"
		f.Remedy = "export MCAST_IFACE=NAME on them, of an interface whose address others do not have"
	}
	return found
}

// networksDiffer finds hosts with a router between them.
func networksDiffer(j *job) []Finding {
	routers := slices.ContainsFunc(j.hosts, func(f Facts) bool {
		ttl, err := strconv.Atoi(f.Settings.Set["MCAST_TTL"])
		return err == nil && ttl > 1
	})
	groups := j.differing(func(host int) string {
		f := &j.hosts[host]
		l := f.chosen()
		if l == nil || l.Loopback {
			return ""
		}
		for _, p := range l.prefixes() {
			if at, err := netip.ParseAddr(f.Chosen.Address); err == nil && p.Addr() == at {
				return p.Masked().String()
			}
		}
		return ""
	})
	return one(groups != nil && !routers, Warning, "network",
		"hosts are in different networks: "+j.spell(groups),
		"with MCAST_TTL=1, the default, multicast does not pass the router between them",
		"export MCAST_IFACE to interfaces of one network, or MCAST_TTL=2 and multicast routing")
}

// paths makes findings of pairs that fail: one for each host at whose end all do, and one for the
// rest. Why and Remedy are those of f.
func (j *job) paths(f Finding, p pattern, everywhere, to, from, pair string) (found []Finding) {
	say := func(subject, what string) {
		f.Subject, f.What = subject, what
		found = append(found, f)
	}
	if p.all {
		say("network", everywhere)
		return found
	}
	for _, h := range p.to {
		say(j.name(h), fmt.Sprintf(to, j.name(h)))
	}
	for _, h := range p.from {
		say(j.name(h), fmt.Sprintf(from, j.name(h)))
	}
	var rest []string
	for _, r := range p.rest {
		rest = append(rest, j.name(r.From)+" to "+j.name(r.To))
	}
	if len(rest) > 0 {
		say("path", pair+" "+listed(rest))
	}
	return found
}

func unreachable(j *job) []Finding {
	f := Finding{
		Severity: Fault,
		Why:      "ranks there cannot join: they connect by TCP",
		Remedy:   "let TCP pass between all hosts (sudo nft list ruleset), or name others by MCAST_IFACE",
	}
	return j.paths(
		f,
		j.conclude(func(p Pair) bool { return !p.TCP }),
		"no host reaches another by TCP",
		"no other host reaches %s by TCP",
		"%s reaches no other host by TCP",
		"TCP does not pass from",
	)
}

func noMulticast(j *job) []Finding {
	f := Finding{
		Severity: Fault,
		Why:      "Allgather and Broadcast go from rank to rank over TCP, no faster than a ring",
		Remedy:   "a querier in one switch; UDP to 239.192.0.0/14 through firewalls; TROUBLESHOOTING.md",
	}
	deaf := j.conclude(func(p Pair) bool { return p.Multicast == 0 && p.TCP })
	return j.paths(
		f,
		deaf,
		"multicast reaches no host: the network carries none",
		"%s hears no other host's multicast",
		"nobody hears what %s multicasts",
		"multicast does not pass from",
	)
}

// mtuHole finds paths that carry less than the interfaces at their ends.
func mtuHole(j *job) []Finding {
	least := 0
	narrow := func(p Pair) bool {
		carried := p.Multicast
		if carried == 0 || p.Unicast > 0 && p.Unicast < carried {
			carried = p.Unicast
		}
		if carried == 0 || carried >= p.Full {
			return false
		}
		if least == 0 || carried < least {
			least = carried
		}
		return true
	}
	pattern := j.conclude(narrow)
	f := Finding{
		Severity: Fault,
		Why:      "full packets are lost there: chunks are made smaller, and other programs stand still",
		Remedy: fmt.Sprintf(
			"mend the MTU of that switch port or tunnel, or sudo ip link set IFACE mtu %d on all hosts",
			least,
		),
	}
	size := fmt.Sprintf("packets of more than %d bytes, which interfaces allow,", least)
	return j.paths(
		f,
		pattern,
		size+" pass nowhere",
		size+" do not reach %s",
		size+" of %s do not arrive",
		size+" do not pass from",
	)
}

func lossyPath(j *job) []Finding {
	const some = 0.001
	f := Finding{
		Severity: Warning,
		Why:      "what is lost comes by repair: each operation waits for it",
		Remedy:   "look at drops of that card (ethtool -S IFACE) and its switch port, cable, transceiver",
	}
	return j.paths(f, j.conclude(func(p Pair) bool { return p.Lost >= some }),
		"datagrams are lost between all hosts", "datagrams to %s are lost", "datagrams of %s are lost",
		"datagrams are lost from")
}

// slowPath finds paths at less than half of what is usual in this job.
func slowPath(j *job) []Finding {
	var rates []float64
	for _, p := range j.Pairs {
		if p.Mbps > 0 {
			rates = append(rates, p.Mbps)
		}
	}
	if len(rates) == 0 {
		return nil
	}
	slices.Sort(rates)
	usual := rates[len(rates)/2]
	slow := j.conclude(func(p Pair) bool { return p.Mbps > 0 && p.Mbps < usual/2 })
	f := Finding{Severity: Warning, Why: "the slowest host sets the pace of all",
		Remedy: "ethtool IFACE there (speed, duplex), its switch port, and what else uses the link"}
	usually := fmt.Sprintf(" at less than half of the usual %.0f Mbit/s", usual)
	return j.paths(f, slow, "", "%s receives"+usually, "%s sends"+usually, "slow"+usually+":")
}
