package faults

import (
	"slices"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// Rows about ranks that share a host with others: two on each of two hosts.
var levelRows = slices.Concat(
	across(func(Over) Row {
		return Row{ID: "/killed", Family: Process, Fault: "rank 3, one of a host and not its leader, is killed",
			Then: "all others are told that rank 3 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 3 is lost"},
			Fails: []int{3},
			Quick: true, job: job{during: signal(3, syscall.SIGKILL)}}
	}, Nodes),
	across(func(over Over) Row {
		return Row{ID: "/leader-killed", Family: Process, Fault: "rank 2, the leader of its host, is killed",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 2 is lost"},
			Fails: []int{2},
			Quick: over == Nodes, job: job{during: signal(2, syscall.SIGKILL)}}
	}, Nodes, Rails),
	across(func(Over) Row {
		return Row{ID: "/stopped", Family: Process, Fault: "rank 3 stands still for good (SIGSTOP)",
			Then: "all others are told that rank 3 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 3 is lost"},
			Fails: []int{3},
			job:   job{during: signal(3, syscall.SIGSTOP)}}
	}, Nodes),
	across(func(Over) Row {
		return Row{ID: "/leader-stopped", Family: Process,
			Fault: "rank 2, the leader of its host, stands still for good (SIGSTOP)",
			Then:  "all others are told that rank 2 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 2 is lost"},
			Fails: []int{2},
			job:   job{during: signal(2, syscall.SIGSTOP)}}
	}, Nodes),
	across(func(Over) Row {
		return Row{ID: "/leader-pauses", Family: Process,
			Fault: "rank 2, the leader of its host, stands still for nine tenths of `MCAST_TIMEOUT`",
			Then:  "all wait for it", Ends: Succeeds, Bound: AtOnce,
			job: job{
				timeout: 4 * time.Second,
				during:  then(signal(2, syscall.SIGSTOP), lasts(3600*time.Millisecond), signal(2, syscall.SIGCONT)),
			}}
	}, Nodes),
	across(func(Over) Row {
		return Row{ID: "/disagrees", Family: Process,
			Fault: "rank 3 calls an Allreduce of another size than the others, also than the rank on its host",
			Then:  "all are told what each has called", Ends: Errors, Bound: AtOnce, Says: []string{"disagree"},
			job: job{acts: act(3, "disagree")}}
	}, Nodes),
	across(func(Over) Row {
		return Row{ID: "/aborts", Family: Process, Fault: "rank 1 aborts the group",
			Then: "all others are told that rank 1 aborted, and why", Ends: Errors, Bound: AtOnce,
			Says: []string{"rank 1 aborted: its loss is not a number"}, Fails: []int{1},
			job: job{acts: act(1, "abort")}}
	}, Nodes),
	across(func(Over) Row {
		return Row{ID: "/cut-off", Family: Host, Fault: "the link of a host with ranks 2 and 3 is down for good",
			Then: "the ranks of the other host are told that rank 2, or 3, is lost", Ends: Errors, Bound: Timeout,
			Says: []string{"rank 2 is lost|rank 3 is lost"}, Fails: []int{2, 3},
			Quick: true, job: job{during: link(host(1), false)}}
	}, Nodes),
	across(func(Over) Row {
		return Row{ID: "/vanishes", Family: Host,
			Fault: "a host with ranks 2 and 3 is gone (power, kernel), without a word to anybody",
			Then:  "the ranks of the other host are told that rank 2, or 3, is lost", Ends: Errors, Bound: Timeout,
			Says: []string{"rank 2 is lost|rank 3 is lost"}, Fails: []int{2, 3},
			job: job{during: then(link(host(1), false), signal(2, syscall.SIGKILL), signal(3, syscall.SIGKILL))}}
	}, Nodes),
	across(func(Over) Row {
		return Row{ID: "/link-down-quarter", Family: Link,
			Fault: "the link of a host with ranks 2 and 3 is down for a quarter of `MCAST_TIMEOUT`",
			Then:  "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{timeout: 4 * time.Second, during: then(link(host(1), false), lasts(time.Second), link(host(1), true))}}
	}, Nodes),
	across(func(over Over) Row {
		leader := map[Over]int{SHM: 0, Nodes: 2}[over]
		return Row{ID: "/no-room", Family: Resource,
			Fault: "a leader may not reserve the memory that ranks of its host share (a limit on memory or on file size)",
			Then:  "the group works without shared memory, and a rank warns which limits to check", Ends: Succeeds,
			Bound: slowly, Warns: []string{"check the limits on memory and on file size"},
			Quick: over == Nodes, job: job{acts: []worker.Act{{Rank: leader, Before: "join", Do: "cramp", Bytes: 64 << 10}}}}
	}, SHM, Nodes),
	across(func(Over) Row {
		return Row{ID: "/no-room-and-no-other-way", Family: Resource,
			Fault: "rank 0 may not reserve the memory that ranks of its host share, and `MCAST_FABRIC=shm`",
			Then:  "joining ends with an error that names the limits, and settings that do without", Ends: Errors,
			Bound: JoinTimeout, Says: []string{"check the limits on memory and on file size", "auto and udp do without"},
			job: job{
				env: []string{"MCAST_FABRIC=shm"}, acts: []worker.Act{{Rank: 0, Before: "join", Do: "cramp", Bytes: 64 << 10}},
			}}
	}, SHM),
	across(func(over Over) Row {
		leader := map[Over]int{SHM: 0, Nodes: 2}[over]
		return Row{ID: "/no-room-for-results", Family: Resource, Fault: "a leader may make room for the memory that ranks " +
			"of its host share, but not for results there (`MCAST_OUTPUTS` beyond a limit on file size)",
			Then: "the group works without shared memory, and a rank warns which limit to check", Ends: Succeeds, Bound: slowly,
			Warns: []string{"check the limit on file size"},
			job: job{
				env:  []string{"MCAST_OUTPUTS=1GiB"},
				acts: []worker.Act{{Rank: leader, Before: "join", Do: "cramp", Bytes: 512 << 20}},
			}}
	}, SHM, Nodes),
)
