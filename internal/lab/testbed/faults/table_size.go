package faults

import (
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// largePackets are words of the messages about a path that takes small packets
// alone.
var largePackets = []string{"MTU", "bytes"}

// Rows about packets that are too long for a path.
var sizeRows = slices.Concat(
	across(func(over Over) Row {
		return Row{ID: "/mtu-at-start", Family: Size,
			Fault: "hosts have an MTU of 9000 bytes, and one port of the network switch 1500",
			Then:  "the group works with smaller packets, and says which ranks, which size and what to do", Ends: Succeeds,
			Bound: Timeout, Warns: append([]string{"rank 2"}, largePackets...),
			Quick: over == UDP, job: job{before: mtu(host(2), 1500), rounds: 3}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/mtu-shrinks", Family: Size,
			Fault: "the MTU of a network switch's port to host 2 shrinks from 9000 to 1500 bytes",
			Then:  "all are told which ranks, which direction and which size", Ends: Errors, Bound: Timeout,
			Says: append([]string{"rank 2"}, largePackets...),
			job:  job{during: mtu(host(2), 1500)}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/mtu-shrinks-for-a-moment", Family: Size,
			Fault: "the MTU of a network switch's port shrinks for half of `MCAST_TIMEOUT`",
			Then:  "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{timeout: defaultTimeout, during: then(mtu(host(2), 1500), lasts(defaultTimeout/2), heal)}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/large-lost-in-at-start", Family: Size, Fault: "packets of more than 1500 bytes do not reach host 1",
			Then: "the group works with smaller packets, and says which ranks, which size and what to do", Ends: Succeeds,
			Bound: Timeout, Warns: append([]string{"rank 1"}, largePackets...),
			job: job{before: loss(host(1), testbed.Loss{Share: 1, Above: 1500, At: "in"}), rounds: 3}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/large-lost-out-at-start", Family: Size, Fault: "packets of more than 1500 bytes do not leave host 1",
			Then: "the group works with smaller packets, and says which ranks, which size and what to do", Ends: Succeeds,
			Bound: Timeout, Warns: append([]string{"rank 1"}, largePackets...),
			job: job{before: loss(host(1), testbed.Loss{Share: 1, Above: 1500, At: "out"}), rounds: 3}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/large-lost-in", Family: Size, Fault: "packets of more than 1500 bytes no longer reach host 1",
			Then: "all are told which ranks, which direction and which size", Ends: Errors, Bound: Timeout,
			Says: append([]string{"rank 1"}, largePackets...),
			job:  job{during: loss(host(1), testbed.Loss{Share: 1, Above: 1500, At: "in"})}}
	}, UDP, Tree),
	across(func(Over) Row {
		return Row{ID: "/large-lost-out", Family: Size, Fault: "packets of more than 1500 bytes no longer leave host 1",
			Then: "all are told which ranks, which direction and which size", Ends: Errors, Bound: Timeout,
			Says: append([]string{"rank 1"}, largePackets...),
			job:  job{during: loss(host(1), testbed.Loss{Share: 1, Above: 1500, At: "out"})}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/large-udp-lost", Family: Size, Fault: "large UDP datagrams do not reach host 1, but TCP does",
			Then: "no operation fails, and a rank warns", Ends: Succeeds, Bound: slowly, Warns: []string{"rank 1"},
			job: job{before: loss(host(1), testbed.Loss{Share: 1, Above: 1500, At: "in", Protocol: "udp"}), rounds: 3}}
	}, UDP),
	across(func(over Over) Row {
		return Row{ID: "/node-mtu-at-start", Family: Size,
			Fault: "the port to `mcast switch` has an MTU of 1500 bytes, hosts 9000",
			Then:  "no operation fails; Reduce-Scatters go directly, and a rank says why", Ends: Succeeds, Bound: slowly,
			Route: "direct", Warns: []string{"bytes"},
			Quick: over == Switch, job: job{before: mtu(node(0), 1500), rounds: 3}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-mtu-shrinks", Family: Size,
			Fault: "the MTU of the port to `mcast switch` shrinks from 9000 to 1500 bytes",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: mtu(node(0), 1500)}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-results-lost", Family: Size, Fault: "large datagrams from `mcast switch` no longer arrive",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: loss(node(0), testbed.Loss{Share: 1, Above: 1500, At: "out", Protocol: "udp"})}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/root-mtu-shrinks", Family: Size,
			Fault: "the MTU of the port to the root of the tree shrinks from 9000 to 1500 bytes",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: mtu(node(2), 1500)}}
	}, Tree),
)
