package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// multicastRules are about how switches and routers learn who listens.
var multicastRules = []rule{
	{"no-memberships", func(f *Facts) []Finding {
		return one(f.IGMP.MaxMemberships == 0, Warning, "net.ipv4.igmp_max_memberships",
			"a socket may join no group", "nothing is multicast: ranks relay over TCP, as fast as a ring",
			"sudo sysctl -w net.ipv4.igmp_max_memberships=20")
	}},
	{"igmp-forced", igmpForced},
	{"cloud", cloud},
	{"no-querier", noQuerier},
	{"reverse-path-filter", func(f *Facts) []Finding {
		const strict = 1
		return one(f.Net.RPFilter == strict && f.Chosen.Why == ByName && f.otherDefault() != "", Warning,
			f.Chosen.Name,
			fmt.Sprintf("reverse paths are checked strictly, and the default route is %s's", f.otherDefault()),
			"multicast of ranks beyond the own network is dropped without a word",
			fmt.Sprintf("sudo sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.%s.rp_filter=2", f.Chosen.Name))
	}},
	{"multicast-route", multicastRoute},
}

// otherDefault returns the interface of the default route if that is not the chosen one.
func (f *Facts) otherDefault() string {
	other := ""
	for _, r := range f.Routes {
		if r.To != "0.0.0.0/0" {
			continue
		}
		if r.Link == f.Chosen.Name {
			return ""
		}
		other = r.Link
	}
	return other
}

// setIGMP is the command that makes the chosen interface speak a version; 0: the querier's.
func (f *Facts) setIGMP(version int) string {
	return fmt.Sprintf("sudo sysctl -w net.ipv4.conf.%s.force_igmp_version=%d", f.Chosen.Name, version)
}

// igmpForced finds a version of IGMP that is set and does not do.
func igmpForced(f *Facts) []Finding {
	q := f.IGMP.Querier
	switch {
	case f.IGMP.Forced == 1:
		return one(true, Warning, f.Chosen.Name, "IGMP is forced to version 1",
			"a switch learns only by a timeout that this host has left a group", f.setIGMP(0))
	case f.IGMP.Forced == 3 && q.Heard && q.Version < 3:
		return one(true, Fault, f.Chosen.Name,
			fmt.Sprintf("IGMP is forced to version 3, the querier %s speaks version %d", q.From, q.Version),
			"it does not understand what this host reports, and sends it no multicast", f.setIGMP(0))
	}
	return nil
}

// cloud finds networks that carry multicast only if they are told to.
func cloud(f *Facts) []Finding {
	for _, c := range []struct{ vendor, carries string }{
		{"Amazon", "by a transit gateway with a multicast domain"},
		{"Google", "as a managed service"},
	} {
		if !strings.HasPrefix(f.Cloud, c.vendor) || f.IGMP.Forced == 2 || f.onLoopback() {
			continue
		}
		return one(true, Warning, f.Cloud, "its network carries multicast only "+c.carries+", and speaks IGMPv2",
			"Linux reports in version 3 until it hears a query; without multicast all comes by repair", f.setIGMP(2))
	}
	return nil
}

// queriedEach is how long a querier may be silent (RFC 2236, 8.2).
const queriedEach = 125 * time.Second

// startQuerier is what mends that nobody asks.
const startQuerier = "turn the IGMP snooping querier on in one switch of the VLAN, or snooping off;" +
	" on a Linux bridge: sudo ip link set br0 type bridge mcast_querier 1"

// noQuerier finds that nobody asks who listens. Only who has listened as long as a querier may be
// silent knows for certain.
func noQuerier(f *Facts) []Finding {
	q := f.IGMP.Querier
	if q.Listened == 0 || q.Heard {
		return nil
	}
	const why = "a switch that snoops IGMP without a querier forgets the group after some 4 minutes:" +
		" a job is fast, then slow"
	if q.Listened <= queriedEach {
		return one(true, Note, f.Chosen.Name,
			fmt.Sprintf("no IGMP querier was heard within %v, and none asked when a group was left",
				q.Listened.Round(100*time.Millisecond)),
			why,
			fmt.Sprintf("to be certain listen longer than a querier is silent: sudo mcast doctor --listen %v",
				queriedEach+10*time.Second))
	}
	return one(true, Warning, f.Chosen.Name,
		fmt.Sprintf("no IGMP querier was heard within %v", q.Listened.Round(time.Second)), why, startQuerier)
}

// multicastRoute says where others' multicast would go.
func multicastRoute(f *Facts) []Finding {
	if f.onLoopback() || f.MulticastRoute == f.Chosen.Name || f.MulticastRoute == "" || f.Family() == batch.IPv6 {
		return nil
	}
	goes := "goes by " + f.MulticastRoute
	if f.Link(f.MulticastRoute) == nil {
		goes = "has no route (" + f.MulticastRoute + ")"
	}
	return one(true, Note, f.Chosen.Name,
		fmt.Sprintf("by the routing table multicast to 239.0.0.0/8 %s, not by %s", goes, f.Chosen.Name),
		"this library names its interface and needs no such route; other programs may",
		"sudo ip route add 239.0.0.0/8 dev "+f.Chosen.Name)
}
