package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// alikeRules are about what the hosts of a job should have alike.
var alikeRules = []jobRule{
	{"settings-differ", settingsDiffer},
	{"secrets-differ", secretsDiffer},
	{"same-address-on-hosts", sameAddressOnHosts},
	{"families-differ", familiesDiffer},
	{"networks-differ", networksDiffer},
	{"mtu-differs", func(j *job) []Finding {
		return j.differ(func(host int) string {
			if l := j.hosts[host].ChosenLink(); l != nil && !l.Loopback {
				return strconv.Itoa(l.MTU)
			}
			return ""
		}, Warning, "MTU", "it is", "chunks are fitted to the smallest, and switch ports may drop larger packets",
			"the same on all hosts: sudo ip link set IFACE mtu 1500")
	}},
	{"speed-differs", func(j *job) []Finding {
		return j.differ(func(host int) string {
			if l := j.hosts[host].ChosenLink(); l != nil && l.Mbps > 0 {
				return strconv.Itoa(l.Mbps) + " Mbit/s"
			}
			return ""
		}, Warning, "speed", "links run at", "the slowest host sets the pace of all",
			"look at cable and switch port of the slow ones, or name other interfaces by MCAST_IFACE")
	}},
	{"nccl-differs", func(j *job) []Finding {
		return j.differ(func(host int) string { return j.hosts[host].NCCL.Version }, Warning, "NCCL", "its version is",
			"ranks with different versions of NCCL may refuse each other", "the same on all hosts")
	}},
}

// settingsDiffer compares the variables that ranks must have alike.
func settingsDiffer(j *job) (found []Finding) {
	agreed := make([]map[string]string, len(j.hosts))
	for i := range j.hosts {
		agreed[i] = make(map[string]string)
		s, err := config.Load(func(name string) (string, bool) {
			if name == "MCAST_SECRET" || name == "MCAST_SECRET_FILE" {
				return "", false // no host tells its secret, and its secret file is on its own disk
			}
			value, ok := j.hosts[i].Settings.Set[name]
			return value, ok
		}, nil)
		if err != nil {
			continue // which is a finding of that host's
		}
		for _, at := range s.Alike() {
			agreed[i][at.Name] = strconv.Quote(at.Value)
		}
	}
	defaults := config.Default()
	for _, at := range defaults.Alike() {
		found = append(found, j.differ(func(host int) string { return agreed[host][at.Name] }, Fault, at.Name, "it is",
			"ranks with different values do not join", "the same on all hosts, or unset "+at.Name)...)
	}
	return found
}

// secretsDiffer compares the secrets of hosts by the digest that each host tells.
func secretsDiffer(j *job) []Finding {
	return j.differ(func(host int) string {
		switch s := j.hosts[host].Settings; {
		case s.Bad != "":
			return "" // which is a finding of that host's
		case s.Secret == "":
			return "not set"
		case s.Secret == config.InStore:
			return "set, to be taken from torch's store,"
		default:
			return "set, with the digest " + s.Secret + ","
		}
	}, Fault, "MCAST_SECRET", "it (or MCAST_SECRET_FILE) is",
		"ranks of different secrets, or some with and some without one, do not join",
		"the same on all hosts, or unset both on all")
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
		f.Severity, f.Hosts = Fault, j.list(hosts)
		f.What = fmt.Sprintf("%s have the same address on %s", j.names(hosts), first.Name)
		f.Why = "ranks that connect to one of them reach themselves, or another"
		f.Remedy = "export MCAST_IFACE=NAME on them, with an interface that has an address of its own"
	}
	return found
}

// family returns the version of IP by which others would reach a host; empty: none.
func (j *job) family(host int) string {
	at, err := netip.ParseAddr(j.hosts[host].Chosen.Address)
	switch {
	case err != nil || at.IsLoopback():
		return ""
	case at.Is6():
		return "IPv6"
	}
	return "IPv4"
}

// familiesDiffer finds hosts that have addresses of the one version of IP, and others of the other.
func familiesDiffer(j *job) []Finding {
	only4 := func(f Facts) bool {
		l := f.ChosenLink()
		return l != nil && !l.Loopback && l.global6() == ""
	}
	if !slices.ContainsFunc(j.hosts, only4) {
		return nil // the library takes IPv6
	}
	return j.differ(j.family, Fault, "addresses", "hosts have",
		"hosts with different versions of IP cannot reach each other, and no paths were tried between them",
		"an IPv4 address on all: sudo ip addr add 10.0.0.1/24 dev IFACE; or an IPv6 address on all")
}

// networksDiffer finds hosts with a router between them.
func networksDiffer(j *job) []Finding {
	routers := slices.ContainsFunc(j.hosts, func(f Facts) bool {
		ttl, err := strconv.Atoi(f.Settings.Set["MCAST_TTL"])
		return err == nil && ttl > 1
	})
	if routers || j.differing(j.family) != nil { // the latter is said already
		return nil
	}
	return j.differ(func(host int) string {
		f := &j.hosts[host]
		l := f.ChosenLink()
		if l == nil || l.Loopback {
			return ""
		}
		for _, p := range l.prefixes() {
			if at, err := netip.ParseAddr(f.Chosen.Address); err == nil && p.Addr() == at {
				return p.Masked().String()
			}
		}
		return ""
	}, Warning, "network", "hosts are in different networks:",
		"with MCAST_TTL=1, the default, multicast does not pass the router between them",
		"export MCAST_IFACE to interfaces of one network, or MCAST_TTL=2 and multicast routing")
}
