package faults

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Rows about links.
var linkRows = slices.Concat(
	across(func(over Over) Row {
		return Row{ID: "/link-blinks", Family: Link, Fault: "the link of host 2 is down for 0.2 s",
			Then: "no operation fails", Ends: Succeeds, Bound: Timeout,
			Quick: over == UDP, job: job{during: then(link(host(2), false), lasts(200*time.Millisecond), link(host(2), true))}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/link-down-quarter", Family: Link,
			Fault: "the link of host 2 is down for a quarter of `MCAST_TIMEOUT`",
			Then:  "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{timeout: 4 * time.Second, during: then(link(host(2), false), lasts(time.Second), link(host(2), true))}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/link-down-5s", Family: Link,
			Fault: "the link of host 2 is down for 5 s, a sixth of `MCAST_TIMEOUT` as it comes",
			Then:  "no operation fails", Ends: Succeeds, Bound: Bound{Plus: 8 * time.Second},
			job: job{timeout: 30 * time.Second, during: then(link(host(2), false), lasts(5*time.Second), link(host(2), true))}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/link-flaps", Family: Link,
			Fault: "the link of host 2 goes down for 0.1 s ten times, with 0.2 s between",
			Then:  "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{
				during: times(10, link(host(2), false), lasts(100*time.Millisecond), link(host(2), true),
					lasts(200*time.Millisecond)),
			}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/link-down", Family: Link, Fault: "the link of host 2 is down for good",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 2 is lost"},
			Fails: []int{2},
			job:   job{during: link(host(2), false)}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/link-down-at-start", Family: Link, Fault: "the link of host 2 is down before the job starts",
			Then: "the others are told which rank has not come", Ends: Errors, Bound: JoinTimeout,
			Says: []string{"rank 2|ranks 2|2|rank 0|rendezvous"}, Fails: []int{2},
			job: job{before: link(host(2), false)}}
	}, UDP),
	across(func(Over) Row {
		return Row{ID: "/all-links-blink", Family: Link, Fault: "all links are down for 0.3 s (a switch restarts)",
			Then: "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{during: then(everywhere(func(p target) func(*Scene) error { return link(p, false) }),
				lasts(300*time.Millisecond),
				everywhere(func(p target) func(*Scene) error { return link(p, true) }))}}
	}, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/link-slows", Family: Link, Fault: "the link of host 1 negotiates a twentieth of its rate",
			Then: "no operation fails; all are as slow as the link", Ends: Succeeds, Bound: Bound{Plus: 5 * time.Second},
			job: job{during: rate(host(1), linkRate/20)}}
	}, UDP, Switch),
	across(func(over Over) Row {
		return Row{ID: "/loses-1-percent", Family: Link, Fault: "all links lose 1 % of packets in each direction",
			Then: "no operation fails", Ends: Succeeds, Bound: Timeout, Quick: over == UDP,
			job: job{during: everywhere(func(p target) func(*Scene) error { return loss(p, testbed.Loss{Share: 0.01}) })}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/loses-10-percent", Family: Link, Fault: "the link of host 0 loses 10 % of packets in each direction",
			Then: "no operation fails, and a rank warns that much is repaired", Ends: Succeeds,
			Bound: Bound{Plus: 12 * time.Second}, Warns: []string{"repair"},
			job: job{timeout: 4 * time.Second, during: then(loss(host(0), testbed.Loss{Share: 0.1}), lasts(11*time.Second))}}
	}, UDP),
)
