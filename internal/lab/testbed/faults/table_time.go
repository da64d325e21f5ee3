package faults

import (
	"fmt"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// lateness is how late a rank is: twice MCAST_TIMEOUT.
const lateness = 2 * defaultTimeout

// operationNames are those of operations in IDs and sentences.
var operationNames = []struct{ operation, name string }{
	{"allgather", "an Allgather"}, {"reducescatter", "a Reduce-Scatter"}, {"allreduce", "an Allreduce"},
	{"broadcast", "a Broadcast"}, {"barrier", "a barrier"},
}

// late is a rank that comes so late to its first operation of a kind, and to nothing else.
func late(over Over, operation, name string, rank int) Row {
	return Row{ID: fmt.Sprintf("%s/late-%s-rank%d", over, operation, rank), Over: over, Family: Time,
		Fault: fmt.Sprintf("rank %d comes to the job's first operation, %s, later than the others by twice `MCAST_TIMEOUT`",
			rank, name),
		Then: "all wait for it", Ends: Succeeds, Bound: AtOnce, Quick: over == UDP && rank == 0 &&
			operation == "reducescatter",
		job: job{
			timeout: lateness / 2, operations: []string{operation}, rounds: 3,
			acts: []worker.Act{{Rank: rank, Before: operation, Do: "wait", For: lateness}},
		}}
}

// Rows about ranks that are late, and about what lasts.
var timeRows = slices.Concat(
	lateRows(),
	across(func(Over) Row {
		return Row{ID: "/late-start", Family: Time, Fault: "rank 0 is started later than the others by twice `MCAST_TIMEOUT`",
			Then: "all wait for it", Ends: Succeeds, Bound: AtOnce,
			job: job{timeout: lateness / 2, rounds: 3, acts: []worker.Act{{Rank: 0, Before: "join", Do: "wait", For: lateness}}}}
	}, SHM, UDP, Switch),
	across(func(over Over) Row {
		return Row{ID: "/late-close", Family: Time,
			Fault: "rank 1 closes the group later than the others by twice `MCAST_TIMEOUT`",
			Then:  "all wait for it", Ends: Succeeds, Bound: AtOnce, Quick: over == SHM,
			job: job{
				timeout: lateness / 2, rounds: 3,
				acts: []worker.Act{{Rank: 1, Round: 2, Before: "close", Do: "wait", For: lateness}},
			}}
	}, SHM, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/late-again", Family: Time,
			Fault: "rank 3 comes to an Allreduce in the midst of the job later than the others by twice `MCAST_TIMEOUT`",
			Then:  "all wait for it", Ends: Succeeds, Bound: AtOnce,
			job: job{
				timeout: lateness / 2, acts: []worker.Act{{Rank: 3, Round: 5, Before: "allreduce", Do: "wait", For: lateness}},
			}}
	}, SHM, UDP, Switch, Tree),
	across(func(Over) Row {
		const late = 10 * time.Second
		return Row{ID: "/late-10s", Family: Time, Fault: "every rank is 10 s late once: at the first Allgather, the first " +
			"Reduce-Scatter, the first Broadcast, at closing; `MCAST_TIMEOUT` is 3 s",
			Then: "all wait for it", Ends: Succeeds, Bound: AtOnce,
			job: job{timeout: 3 * time.Second, rounds: 3, acts: []worker.Act{
				{Rank: 0, Before: "allgather", Do: "wait", For: late}, {Rank: 3, Before: "reducescatter", Do: "wait", For: late},
				{Rank: 1, Before: "broadcast", Do: "wait", For: late},
				{Rank: 2, Round: 2, Before: "close", Do: "wait", For: late}}}}
	}, SHM, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/delayed", Family: Time, Fault: "everything that goes to host 2 takes 50 ms longer, for 3 s",
			Then: "no operation fails", Ends: Succeeds, Bound: Timeout,
			job: job{during: delay(host(2), 50*time.Millisecond, 3*time.Second)}}
	}, UDP, Switch, Tree),
	across(func(Over) Row {
		return Row{ID: "/late-rejoin", Family: Time,
			Fault: "`mcast switch` is back while rank 0 computes for three times `MCAST_TIMEOUT`",
			Then:  "all wait for it, and Reduce-Scatters go through the switch again", Ends: Succeeds, Bound: nodeBack,
			Route: "switch",
			job: job{timeout: lateness / 2, early: true, during: then(stopNode(0), lasts(time.Second), startNode(0)),
				acts: []worker.Act{{Rank: 0, Round: 20, Before: "allgather", Do: "wait", For: 3 * lateness / 2}}}}
	}, Switch),
)

func lateRows() []Row {
	var rows []Row
	for _, over := range []Over{UDP, SHM, Switch, Tree} {
		for _, op := range operationNames {
			for _, rank := range []int{0, 3} {
				if rank == 0 || over == UDP {
					rows = append(rows, late(over, op.operation, op.name, rank))
				}
			}
		}
	}
	return rows
}
