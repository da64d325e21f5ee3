package faults

import (
	"slices"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// Rows about hosts that hold different numbers of ranks: rank 0 is alone, rank 1 stands for 2 and 3.
var unevenRows = slices.Concat(
	across(func(Over) Row {
		return Row{ID: "/stand-in-killed", Family: Process, Fault: "rank 1, which stands for two of its host, is killed",
			Then: "all others are told that rank 1 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 1 is lost"},
			Fails: []int{1},
			Quick: true, job: job{during: signal(1, syscall.SIGKILL)}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/stand-in-stopped", Family: Process,
			Fault: "rank 1, which stands for two of its host, stands still for good (SIGSTOP)",
			Then:  "all others are told that rank 1 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 1 is lost"},
			Fails: []int{1},
			job:   job{during: signal(1, syscall.SIGSTOP)}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/stand-in-pauses", Family: Process,
			Fault: "rank 1, which stands for two of its host, stands still for nine tenths of `MCAST_TIMEOUT`",
			Then:  "all wait for it", Ends: Succeeds, Bound: AtOnce,
			job: job{
				timeout: 4 * time.Second,
				during:  then(signal(1, syscall.SIGSTOP), lasts(3600*time.Millisecond), signal(1, syscall.SIGCONT)),
			}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/in-no-column-killed", Family: Process, Fault: "rank 3, for which rank 1 stands, is killed",
			Then: "all others are told that rank 3 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 3 is lost"},
			Fails: []int{3},
			Quick: true, job: job{during: signal(3, syscall.SIGKILL)}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/in-no-column-stopped", Family: Process,
			Fault: "rank 3, for which rank 1 stands, stands still for good (SIGSTOP)",
			Then:  "all others are told that rank 3 is lost", Ends: Errors, Bound: Timeout, Says: []string{"rank 3 is lost"},
			Fails: []int{3},
			job:   job{during: signal(3, syscall.SIGSTOP)}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/alone-killed", Family: Process, Fault: "rank 0, alone on its host, is killed",
			Then: "all others are told that rank 0 is lost", Ends: Errors, Bound: AtOnce, Says: []string{"rank 0 is lost"},
			Fails: []int{0},
			job:   job{during: signal(0, syscall.SIGKILL)}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/disagrees", Family: Process,
			Fault: "rank 3, for which rank 1 stands, calls an Allreduce of another size than the others",
			Then:  "all are told what each has called", Ends: Errors, Bound: AtOnce, Says: []string{"disagree"},
			job: job{acts: act(3, "disagree")}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/other-root", Family: Process, Fault: "rank 3 calls a Broadcast from rank 2, the others from rank 1",
			Then: "all are told what each has called", Ends: Errors, Bound: AtOnce, Says: []string{"disagree"},
			job: job{acts: stray(3, 5)}}
	}, Uneven),
	across(func(Over) Row {
		return Row{ID: "/other-root-far", Family: Process,
			Fault: "rank 0 calls a Broadcast from rank 3, the others from rank 2: rank 1 stands for both",
			Then:  "all are told what each has called", Ends: Errors, Bound: AtOnce, Says: []string{"disagree"},
			job: job{acts: stray(0, 6)}}
	}, Uneven),
)

// stray has a rank call the Broadcast of a round with a wrong root: the rank behind the right one.
func stray(rank, round int) []worker.Act {
	return []worker.Act{{Rank: rank, Round: round, Before: "broadcast", Do: "stray"}}
}
