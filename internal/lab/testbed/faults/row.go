// Package faults is the catalogue of faults: what may go wrong with processes, hosts, links and
// paths, what a job does about it, and within which time. Each row is tried on a testbed: a job is
// started, broken, and watched. The table is also docs/reference/faults.md.
package faults

import (
	"cmp"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/faults/worker"
)

// Family is what kind of thing is broken.
type Family string

// The families, in the order of the document.
const (
	Process   Family = "process"
	Host      Family = "host"
	Link      Family = "link"
	Path      Family = "path"
	Size      Family = "size"
	Direction Family = "direction"
	Flow      Family = "flow"
	Resource  Family = "resource"
	Time      Family = "time"
)

// Over is what carries the bytes of the job.
type Over string

// What jobs go over.
const (
	SHM    Over = "shm"    // four ranks on one host
	Nodes  Over = "nodes"  // two ranks on each of two hosts
	Uneven Over = "uneven" // one rank on a host, and three on another
	UDP    Over = "udp"    // four hosts on one leaf
	Switch Over = "switch" // the same, and an aggregation node
	Rails  Over = "rails"  // two ranks on each of two hosts, and an aggregation node
	Tree   Over = "tree"   // four hosts on two leaves, and a tree of three nodes
	Net    Over = "net"    // NCCL's point-to-point messages
)

// Row is a fault and the promise about it.
type Row struct {
	ID     string // OVER/NAME, such as udp/link-down
	Family Family
	Over   Over
	Fault  string // what breaks, and where
	Then   string // what happens
	Ends   Ending
	Bound  Bound

	// Says are texts. The error of every rank that is told contains each of them; "a|b": one of the
	// two.
	Says []string
	// Fails are ranks that may end in any way: the fault itself has cut them off or ended them.
	Fails []int
	// Warns are texts that some rank's log or notes contain in the end; "a|b": one of them.
	Warns []string
	// Route is how Reduce-Scatters go again when the fault is over; empty: does not matter.
	Route string

	// Test is what holds the row where no testbed is needed; empty: `mcast-lab testbed faults --only
	// ID`.
	Test string
	// Quick rows run with the build tag links; all of them in a soak.
	Quick bool
	// Shortfall says why the row is not kept today; empty: it is.
	Shortfall string

	job job
}

// Ending is how a job ends.
type Ending bool

// The endings.
const (
	Succeeds Ending = true
	Errors   Ending = false
)

func (e Ending) String() string {
	if e == Succeeds {
		return "success"
	}
	return "error"
}

// Bound is a time: a multiple of a setting and some more.
type Bound struct {
	Times float64 // 0: once
	Of    string  // a setting, such as MCAST_TIMEOUT; empty: none
	Plus  time.Duration
}

// Bounds that many rows have.
var (
	AtOnce        = Bound{Plus: 2 * time.Second}
	Timeout       = Bound{Times: 1.5, Of: "MCAST_TIMEOUT", Plus: time.Second} // a path is broken then, a rank dead sooner
	SwitchTimeout = Bound{Times: 1.5, Of: "MCAST_SWITCH_TIMEOUT", Plus: time.Second}
	JoinTimeout   = Bound{Of: "MCAST_JOIN_TIMEOUT", Plus: time.Second}
)

// job is the program that runs for a row, and the way to break it.
type job struct {
	timeout    time.Duration // MCAST_TIMEOUT; 0: 2 s
	env        []string
	operations []string // nil: all
	bytes      int      // of a shard; 0: 256 KiB
	rounds     int      // 0: until the row has seen enough
	acts       []worker.Act
	// before breaks what the job is to start on.
	before func(*Scene) error
	// during breaks the testbed or a process, once all ranks have joined and, unless early, done a
	// round. It returns when a fault that passes has passed, or when one that stays is there.
	during func(*Scene) error
	early  bool
	// after ends what healing the testbed does not.
	after func(*Scene) error
}

// settings of jobs, short so that the catalogue is.
const (
	defaultTimeout = 2 * time.Second
	switchTimeout  = time.Second
	joinTimeout    = 5 * time.Second
	defaultBytes   = 256 << 10
)

func (r *Row) timeout() time.Duration {
	if r.job.timeout != 0 {
		return r.job.timeout
	}
	return defaultTimeout
}

// bound is the row's with the settings of its job.
func (r *Row) bound() time.Duration {
	var of time.Duration
	switch r.Bound.Of {
	case "MCAST_TIMEOUT":
		of = r.timeout()
	case "MCAST_SWITCH_TIMEOUT":
		of = switchTimeout
	case "MCAST_JOIN_TIMEOUT":
		of = joinTimeout
	}
	return time.Duration(cmp.Or(r.Bound.Times, 1)*float64(of)) + r.Bound.Plus
}

// runs says whether the row is tried on a testbed.
func (r *Row) runs() bool { return r.Test == "" }

// mustReport says whether a rank must learn of the fault as the row says.
func (r *Row) mustReport(rank int) bool { return !slices.Contains(r.Fails, rank) }
