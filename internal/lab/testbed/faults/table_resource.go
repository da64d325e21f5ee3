package faults

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// Rows about what a host runs out of, and about strangers that would use it up.
var resourceRows = slices.Concat(
	across(func(Over) Row {
		return Row{ID: "/no-descriptors", Family: Resource,
			Fault: "rank 1 can open no file or socket for longer than `MCAST_TIMEOUT` (EMFILE)",
			Then:  "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{during: then(descriptors(host(1), 0), lasts(3*time.Second), descriptors(host(1), -1))}}
	}, UDP, Switch),
	across(func(over Over) Row {
		return Row{ID: "/no-descriptors-at-first", Family: Resource,
			Fault: "rank 1 can open no file or socket when the first Reduce-Scatter begins, and for a second after",
			Then:  "all wait for it", Ends: Succeeds, Bound: Timeout, Quick: over == UDP,
			job: job{operations: []string{"reducescatter"}, rounds: 3, early: true, acts: allWait("reducescatter", time.Second),
				during: then(descriptors(host(1), 0), lasts(2*time.Second), descriptors(host(1), -1))}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/node-no-descriptors", Family: Resource,
			Fault: "`mcast switch` can open no file or socket for a second",
			Then:  "no operation fails", Ends: Succeeds, Bound: SwitchTimeout,
			job: job{during: then(descriptors(node(0), 0), lasts(time.Second), descriptors(node(0), -1))}}
	}, Switch),
	across(func(Over) Row {
		return Row{ID: "/strangers", Family: Resource,
			Fault: "1500 strangers connect to rank 1 before the first Reduce-Scatter, and say nothing",
			Then:  "no operation fails; they hold at most 64 descriptors", Ends: Succeeds, Bound: AtOnce,
			job: job{
				rounds: 10, early: true, acts: allWait("reducescatter", 4*time.Second),
				during: strangers(host(3), host(1), processOf(1), 1500, 2*time.Second),
			}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/noise", Family: Resource,
			Fault: "a stranger sends 20,000 random datagrams to the group and to the ports of rank 1",
			Then:  "no operation fails, and no byte is wrong", Ends: Succeeds, Bound: Timeout,
			job: job{during: noise(host(3), host(1), 20_000)}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/forged", Family: Resource,
			Fault: "a stranger sends 10,000 datagrams of the group again, as they were, shorter, or with other bytes",
			Then:  "no operation fails, and no byte is wrong", Ends: Succeeds, Bound: Timeout,
			job: job{during: forge(host(3), 10_000)}}
	}, UDP),
	across(func(over Over) Row {
		return Row{ID: "/unreachable", Family: Resource,
			Fault: "a host answers multicast by \"port unreachable\" (ICMP) a thousand times",
			Then:  "no operation fails", Ends: Succeeds, Bound: AtOnce, Quick: over == UDP,
			job: job{during: unreachable(host(3), 1000)}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/no-memberships", Family: Resource, Fault: "host 2 may be in no group (igmp_max_memberships)",
			Then: "no operation fails: chunks go from rank to rank, and a warning names the rank and the setting",
			Ends: Succeeds, Bound: slowly, Warns: []string{"rank 2", "igmp_max_memberships"},
			job: job{
				before: setting(host(2), "ipv4/igmp_max_memberships", "0"),
				after:  setting(host(2), "ipv4/igmp_max_memberships", "20"),
			}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/no-ports", Family: Resource, Fault: "host 3 has two ports left to connect from",
			Then: "joining ends with an error that names the rank, and the cause if it comes as far as the rendezvous",
			Ends: Errors, Bound: JoinTimeout,
			Says: []string{"rank 3",
				"resource temporarily unavailable|assign requested address|has not come|ip_local_port_range"},
			job: job{
				before: setting(host(3), "ipv4/ip_local_port_range", "61000 61001"),
				after:  setting(host(3), "ipv4/ip_local_port_range", "32768 60999"),
			}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/small-buffers", Family: Resource,
			Fault: "receive buffers hold less than one datagram's burst (`MCAST_RCVBUF` of 16 KiB)",
			Then:  "no operation fails", Ends: Succeeds, Bound: Bound{Plus: 5 * time.Second},
			job: job{env: []string{"MCAST_RCVBUF=16KiB"}, during: lasts(time.Second)}}
	}, UDP),
)

// allWait has every rank wait before its first operation.
func allWait(operation string, d time.Duration) (acts []worker.Act) {
	for rank := range ranksOfAJob {
		acts = append(acts, worker.Act{Rank: rank, Before: operation, Do: "wait", For: d})
	}
	return acts
}
