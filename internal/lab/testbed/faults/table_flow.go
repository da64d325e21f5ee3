package faults

import (
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Rows about what goes between two places, while all else passes.
var flowRows = slices.Concat(
	across(func(over Over) Row {
		return Row{ID: "/flow-dies", Family: Flow,
			Fault: "nothing passes between hosts 1 and 2 any more (a member of a LAG, a route)",
			Then:  "all are told that rank 1 or 2 is lost, or gets no data from the other", Ends: Errors, Bound: Timeout,
			Says:  []string{"rank 1|rank 2"},
			Quick: over == UDP, job: job{during: flow(host(1), host(2), testbed.Loss{Share: 1})}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/flow-dies-one-way", Family: Flow, Fault: "what host 1 sends to host 2 no longer arrives",
			Then: "all are told that rank 1 or 2 is lost, or gets no data from the other", Ends: Errors, Bound: Timeout,
			Says: []string{"rank 1|rank 2"},
			job:  job{during: flow(host(1), host(2), testbed.Loss{Share: 1, At: "out"})}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/flow-large-dies", Family: Flow,
			Fault: "packets of more than 1500 bytes from host 1 to host 2 no longer arrive",
			Then:  "all are told which ranks, which direction and which size", Ends: Errors, Bound: Timeout,
			Says: append([]string{"rank 1", "rank 2"}, largePackets...),
			job:  job{during: flow(host(1), host(2), testbed.Loss{Share: 1, At: "out", Above: 1500})}}
	}, UDP),
	across(func(over Over) Row {
		return Row{ID: "/node-flow-dies", Family: Flow,
			Fault: "UDP between host 0 and its `mcast switch` no longer passes (a firewall, an ECMP member)",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			Quick: over == Switch, job: job{during: flow(host(0), node(0), testbed.Loss{Share: 1, Protocol: "udp"})}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-session-dies", Family: Flow,
			Fault: "TCP between host 0 and its `mcast switch` no longer passes",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: flow(host(0), node(0), testbed.Loss{Share: 1, Protocol: "tcp"})}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-results-to-one", Family: Flow, Fault: "large results of `mcast switch` no longer reach host 3",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: loss(host(3), testbed.Loss{Share: 1, At: "in", Protocol: "udp", Cast: "unicast", Above: 1500})}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/parent-flow-dies", Family: Flow,
			Fault: "UDP between a leaf's `mcast switch` and the root of the tree no longer passes",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: flow(node(0), node(2), testbed.Loss{Share: 1, Protocol: "udp"})}}
	}, Tree),
	across(func(Over) Row {
		return Row{ID: "/parent-flow-dies-down", Family: Flow,
			Fault: "UDP from the root of the tree to a leaf's `mcast switch` no longer arrives",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: flow(node(0), node(2), testbed.Loss{Share: 1, Protocol: "udp", At: "in"})}}
	}, Tree),
	across(func(Over) Row {
		return Row{ID: "/parent-session-dies", Family: Flow,
			Fault: "TCP between a leaf's `mcast switch` and the root of the tree no longer passes",
			Then:  "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: flow(node(0), node(2), testbed.Loss{Share: 1, Protocol: "tcp"})}}
	}, Tree),
)
