package faults

import (
	"slices"
	"syscall"

	"github.com/torch-mcast/torch-mcast/internal/testbed/faults/worker"
)

// Rows about processes of a job.
var processRows = slices.Concat(
	across(func(over Over) Row {
		return Row{ID: "/killed", Family: Process, Fault: "rank 2 is killed (SIGKILL, out of memory)",
			Then: "all others are told that rank 2 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 2 is lost"}, Fails: []int{2},
			Quick: over == UDP || over == SHM, job: job{during: signal(2, syscall.SIGKILL)}}
	}, SHM, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/exits", Family: Process, Fault: "rank 1 exits without closing the group",
			Then: "all others are told that rank 1 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 1 is lost"}, Fails: []int{1},
			job: job{acts: []worker.Act{{Rank: 1, Round: 5, Before: "allreduce", Do: "exit"}}}}
	}, SHM, UDP),
)
