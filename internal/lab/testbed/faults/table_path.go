package faults

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

func noMulticast(p target) func(*Scene) error {
	return loss(p, testbed.Loss{Share: 1, Cast: "multicast"})
}

// multicastWarning is what a rank says where multicast does not arrive.
const multicastWarning = "multicast does not|no multicast|multicast from|multicast to"

// unicastWarning is the warning of a rank that finds in mid-run that multicast does not arrive.
const unicastWarning = "by unicast now"

// slowly bounds rows in which the operations in flight are repaired over TCP.
var slowly = Bound{Times: 1.5, Of: "MCAST_TIMEOUT", Plus: 5 * time.Second}

// Rows about paths through the network.
var pathRows = slices.Concat(
	across(func(over Over) Row {
		return Row{ID: "/no-multicast", Family: Path,
			Fault: "the network carries no multicast (a cloud, a container network)",
			Then:  "no operation fails: chunks go from rank to rank, and a rank warns at once", Ends: Succeeds, Bound: slowly,
			Warns: []string{multicastWarning},
			Quick: over == UDP, job: job{before: everywhere(noMulticast), rounds: 3}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/multicast-ends", Family: Path, Fault: "the network stops carrying multicast",
			Then: "no operation fails: chunks go from rank to rank, and a rank warns within 2 s", Ends: Succeeds,
			Bound: Bound{Plus: 12 * time.Second}, Warns: []string{unicastWarning},
			job: job{timeout: 4 * time.Second, during: then(everywhere(noMulticast), lasts(12*time.Second))}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/multicast-to-one", Family: Path, Fault: "a network switch filters multicast to host 3 alone",
			Then: "no operation fails, and a rank warns which rank it does not reach", Ends: Succeeds, Bound: slowly,
			Warns: []string{"rank 3"},
			job:   job{before: loss(host(3), testbed.Loss{Share: 1, Cast: "multicast", At: "in"}), rounds: 3}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/igmp-ages", Family: Path,
			Fault: "the network switch forgets the groups of all hosts (IGMP snooping without a querier)",
			Then:  "no operation fails: chunks go from rank to rank, and a rank warns within 2 s", Ends: Succeeds,
			Bound: Bound{Plus: 12 * time.Second}, Warns: []string{unicastWarning},
			job: job{timeout: 4 * time.Second, during: then(everywhere(aged), lasts(12*time.Second))}}
	}, UDP, Tree),
	across(func(Over) Row {
		return Row{ID: "/igmp-ages-for-one", Family: Path, Fault: "the network switch forgets the groups of host 1",
			Then: "no operation fails", Ends: Succeeds, Bound: slowly,
			job: job{during: aged(host(1))}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/no-igmp", Family: Path, Fault: "the network switch never hears that hosts want a group",
			Then: "no operation fails, and a rank warns at once", Ends: Succeeds, Bound: slowly,
			Warns: []string{multicastWarning},
			job:   job{before: everywhere(aged), rounds: 3}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/firewall-multicast", Family: Path, Fault: "the firewall of host 1 refuses to send multicast (EPERM)",
			Then: "no operation fails, and a rank warns", Ends: Succeeds, Bound: slowly,
			Warns: []string{"EPERM|not permitted|multicast from rank 1"},
			job: job{
				before: loss(host(1), testbed.Loss{Share: 1, At: "firewall", Protocol: "udp", Cast: "multicast"}), rounds: 3,
			}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/firewall-udp", Family: Path, Fault: "the firewall of host 1 begins to refuse UDP (EPERM)",
			Then: "no operation fails", Ends: Succeeds, Bound: slowly,
			job: job{during: loss(host(1), testbed.Loss{Share: 1, At: "firewall", Protocol: "udp"})}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/firewall-tcp", Family: Path, Fault: "the firewall of host 1 begins to refuse TCP",
			Then: "all others are told that rank 1 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 1 "},
			Fails: []int{1},
			job:   job{during: loss(host(1), testbed.Loss{Share: 1, At: "firewall", Protocol: "tcp"})}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/node-firewall", Family: Path,
			Fault: "the firewall of the host of `mcast switch` begins to refuse UDP (EPERM)",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: loss(node(0), testbed.Loss{Share: 1, At: "firewall", Protocol: "udp"})}}
	}, Switch, Tree),
)
