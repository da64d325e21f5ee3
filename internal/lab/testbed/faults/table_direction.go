package faults

import (
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Rows about one direction of a link.
var directionRows = slices.Concat(
	across(func(Over) Row {
		return Row{ID: "/deaf", Family: Direction, Fault: "nothing reaches host 2 any more, but its own packets arrive",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 2"},
			Fails: []int{2},
			job:   job{during: loss(host(2), testbed.Loss{Share: 1, At: "in"})}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/mute", Family: Direction, Fault: "nothing of host 2 arrives any more, but all reaches it",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 2 is lost"},
			Fails: []int{2},
			job:   job{during: loss(host(2), testbed.Loss{Share: 1, At: "out"})}}
	}, UDP, Switch),
	across(func(over Over) Row {
		return Row{ID: "/deaf-to-udp", Family: Direction, Fault: "UDP no longer reaches host 2",
			Then: "no operation fails", Ends: Succeeds, Bound: slowly,
			Quick: over == UDP, job: job{during: loss(host(2), testbed.Loss{Share: 1, At: "in", Protocol: "udp"})}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/mute-by-udp", Family: Direction, Fault: "UDP of host 2 no longer arrives",
			Then: "no operation fails", Ends: Succeeds, Bound: slowly,
			job: job{during: loss(host(2), testbed.Loss{Share: 1, At: "out", Protocol: "udp"})}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/mute-by-tcp", Family: Direction, Fault: "TCP of host 2 no longer arrives",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 2"},
			Fails: []int{2},
			job:   job{during: loss(host(2), testbed.Loss{Share: 1, At: "out", Protocol: "tcp"})}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/node-deaf", Family: Direction, Fault: "nothing reaches `mcast switch` any more",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: loss(node(0), testbed.Loss{Share: 1, At: "in"})}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-mute", Family: Direction, Fault: "nothing from `mcast switch` arrives any more",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: loss(node(0), testbed.Loss{Share: 1, At: "out"})}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-mute-by-udp", Family: Direction, Fault: "UDP from `mcast switch` no longer arrives, TCP does",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: loss(node(0), testbed.Loss{Share: 1, At: "out", Protocol: "udp"})}}
	}, Switch, Tree),
)
