package faults

import (
	"slices"
	"syscall"
	"time"
)

// Rows about hosts.
var hostRows = slices.Concat(
	across(func(Over) Row {
		return Row{ID: "/vanishes", Family: Host, Fault: "host 2 is gone (power, kernel), without a word to anybody",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 2 is lost"},
			Fails: []int{2},
			job:   job{during: then(link(host(2), false), signal(2, syscall.SIGKILL))}}
	}, UDP, Switch, Tree),
	across(func(over Over) Row {
		return Row{ID: "/interface-bounces", Family: Host,
			Fault: "eth0 of host 1 is down for 0.2 s (`ip link set eth0 down`, a driver that resets)",
			Then:  "no operation fails", Ends: Succeeds, Bound: Timeout,
			Quick: over == UDP,
			job:   job{during: then(netInterface(host(1), false), lasts(200*time.Millisecond), netInterface(host(1), true))}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/interface-down-quarter", Family: Host,
			Fault: "eth0 of host 1 is down for a quarter of `MCAST_TIMEOUT`",
			Then:  "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{
				timeout: 4 * time.Second,
				during:  then(netInterface(host(1), false), lasts(time.Second), netInterface(host(1), true)),
			}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/interface-down", Family: Host, Fault: "eth0 of host 1 is down for good",
			Then: "all others are told that rank 1 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 1 is lost"},
			Fails: []int{1},
			job:   job{during: netInterface(host(1), false)}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/address-renewed", Family: Host, Fault: "the address of host 3 is taken away and given back (DHCP)",
			Then: "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{during: times(3, address(host(3)), lasts(200*time.Millisecond))}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/node-vanishes", Family: Host, Fault: "the host of `mcast switch` is gone, without a word to anybody",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: link(node(0), false)}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-interface-bounces", Family: Host, Fault: "eth0 of the host of `mcast switch` is down for 0.2 s",
			Then: "no operation fails", Ends: Succeeds, Bound: SwitchTimeout,
			job: job{during: then(netInterface(node(0), false), lasts(200*time.Millisecond), netInterface(node(0), true))}}
	}, Switch, Tree),
)
