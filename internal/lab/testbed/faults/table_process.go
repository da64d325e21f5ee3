package faults

import (
	"slices"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// act is one that a rank does in the midst of its rounds.
func act(rank int, do string) []worker.Act {
	return []worker.Act{{Rank: rank, Round: 5, Before: "allreduce", Do: do}}
}

// Rows about the processes of a job.
var processRows = slices.Concat(
	across(func(over Over) Row {
		return Row{ID: "/killed", Family: Process, Fault: "rank 2 is killed (SIGKILL, or for want of memory)",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 2 is lost"},
			Fails: []int{2},
			Quick: among(over, SHM, UDP), job: job{during: signal(2, syscall.SIGKILL)}}
	}, SHM, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/exits", Family: Process, Fault: "rank 1 exits without closing the group",
			Then: "all others are told that rank 1 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 1 is lost"},
			Fails: []int{1},
			job:   job{acts: act(1, "exit")}}
	}, SHM, UDP, Switch),
	across(func(Over) Row {
		return Row{ID: "/panics", Family: Process, Fault: "rank 3 ends by an exception",
			Then: "all others are told that rank 3 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 3 is lost"},
			Fails: []int{3},
			job:   job{acts: act(3, "panic")}}
	}, SHM, UDP),
	across(func(over Over) Row {
		return Row{ID: "/aborts", Family: Process, Fault: "rank 1 aborts the group",
			Then: "all others are told that rank 1 aborted, and why", Ends: Errors, Bound: AtOnce,
			Says: []string{"rank 1 aborted: its loss is not a number"}, Fails: []int{1},
			Quick: over == SHM, job: job{acts: act(1, "abort")}}
	}, SHM, UDP, Switch),
	across(func(over Over) Row {
		return Row{ID: "/closes-early", Family: Process, Fault: "rank 1 closes the group while others go on",
			Then: "all others are told that rank 1 has left: its script ended or destroyed the group", Ends: Errors,
			Bound: AtOnce, Says: []string{"rank 1 has left (its script ended or destroyed the group)"}, Fails: []int{1},
			Quick: over == SHM, job: job{acts: act(1, "close")}}
	}, SHM, UDP, Switch),
	across(func(over Over) Row {
		return Row{ID: "/disagrees", Family: Process, Fault: "rank 2 calls an Allreduce of another size than the others",
			Then: "all are told what each has called", Ends: Errors, Bound: AtOnce, Says: []string{"disagree"},
			Quick: over == SHM, job: job{acts: act(2, "disagree")}}
	}, SHM, UDP, Switch),
	across(func(over Over) Row {
		return Row{ID: "/pauses", Family: Process,
			Fault: "rank 2 stands still for nine tenths of `MCAST_TIMEOUT` (SIGSTOP, a page fault to a slow disk)",
			Then:  "all wait for it", Ends: Succeeds, Bound: AtOnce, Quick: over == SHM,
			job: job{
				timeout: 4 * time.Second,
				during:  then(signal(2, syscall.SIGSTOP), lasts(3600*time.Millisecond), signal(2, syscall.SIGCONT)),
			}}
	}, SHM, UDP, Switch, Tree),
	across(func(over Over) Row {
		return Row{ID: "/stopped", Family: Process, Fault: "rank 2 stands still for good (SIGSTOP, a debugger)",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 2 is lost"},
			Fails: []int{2},
			Quick: over == UDP, job: job{during: signal(2, syscall.SIGSTOP)}}
	}, SHM, UDP, Switch, Tree),
)

// Rows about aggregation nodes.
var nodeRows = slices.Concat(
	across(func(over Over) Row {
		return Row{ID: "/node-killed", Family: Process, Fault: "the `mcast switch` of a leaf is killed",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			Quick: over == Switch, job: job{during: stopNode(0)}}
	}, Switch, Rails, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-restarts", Family: Process,
			Fault: "the `mcast switch` of a leaf is killed, and started again a second later",
			Then:  "no operation fails; Reduce-Scatters go directly, and through the switch again", Ends: Succeeds,
			Bound: nodeBack, Route: "switch",
			job: job{during: then(stopNode(0), lasts(time.Second), startNode(0))}}
	}, Switch, Rails, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-stopped", Family: Process, Fault: "the `mcast switch` of a leaf stands still (SIGSTOP)",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: signalPlace(node(0), syscall.SIGSTOP)}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/node-pauses", Family: Process,
			Fault: "the `mcast switch` of a leaf stands still for three times `MCAST_SWITCH_TIMEOUT`",
			Then:  "no operation fails; Reduce-Scatters go directly, and through the switch again", Ends: Succeeds,
			Bound: nodeBack, Route: "switch",
			job: job{
				timeout: 4 * time.Second, during: then(signalPlace(node(0), syscall.SIGSTOP), lasts(3*switchTimeout),
					signalPlace(node(0), syscall.SIGCONT)),
			}}
	}, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/root-killed", Family: Process, Fault: "the root of the tree of `mcast switch` is killed",
			Then: "no operation fails; Reduce-Scatters go directly", Ends: Succeeds, Bound: SwitchTimeout, Route: "direct",
			job: job{during: stopNode(2)}}
	}, Tree),
	across(func(Over) Row {
		return Row{ID: "/root-restarts", Family: Process,
			Fault: "the root of the tree of `mcast switch` is killed, and started again a second later",
			Then:  "no operation fails; Reduce-Scatters go directly, and through the tree again", Ends: Succeeds,
			Bound: nodeBack, Route: "switch",
			job: job{during: then(stopNode(2), lasts(time.Second), startNode(2))}}
	}, Tree),
)

// nodeBack is for how long after a node is back operations may still go without it: ranks look for
// it now and then.
var nodeBack = Bound{Of: "MCAST_SWITCH_TIMEOUT", Plus: 10 * time.Second}
