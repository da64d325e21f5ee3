package hierarchy

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Config says over what operations are posted.
type Config struct {
	Plan   *team.Plan
	Column *Level // of the ranks that the network joins
	Node   *Level // of the ranks of this host; nil: there is one level
	// Shared is memory of the ranks of the last level, which may hold results; nil: there is none.
	Shared hostnet.Region
	Life   context.Context // of the group
	Log    *slog.Logger
	// Report ends the group with a fault.
	Report func(*mesh.Fault)
	// Warn tells the user once a cause that something makes the group slow.
	Warn func(cause, text string)
	// Posted is called after an operation of a class was posted whole.
	Posted func(overlap.Class)
}

// Operations takes the operations of a group: it admits them, posts their steps to the levels, and meters, books and
// counts them. All methods may be called by many goroutines at a time.
type Operations struct {
	plan     *team.Plan
	column   *Level
	levels   []*Level // the column and, behind it, the node, if there is one
	composer composer
	outputs  *outputs // nil: ranks share no memory for results
	report   func(*mesh.Fault)
	posted   func(overlap.Class)

	posting sync.RWMutex // held for reading to post to one lane, else to keep the operations of a call together
	shut    error        // why this rank posts nothing more; guarded by posting

	meter  *overlap.Meter
	waited [2]overlap.Ledger // of the gather and the reduce lane: waiting times by phase
	books  books             // times of all operations, by kind and size; they share the ledgers of waited
	bytes  [2]atomic.Uint64  // of this rank, of each class
}

// New takes operations over the levels of a configuration.
func New(c Config) *Operations {
	o := &Operations{
		plan: c.Plan, column: c.Column, levels: []*Level{c.Column}, report: c.Report, posted: c.Posted,
		meter: new(overlap.Meter),
	}
	o.books.open(&o.waited)
	o.composer = flat{o}
	if c.Node != nil {
		o.levels, o.composer = append(o.levels, c.Node), &nested{Operations: o, node: c.Node}
	}
	if c.Shared != nil {
		o.outputs = newOutputs(c, o.last().Members)
	}
	return o
}

// Levels returns the level of the network and, behind it, the one of this host, if there is one.
func (o *Operations) Levels() []*Level { return o.levels }

// Column returns the level of the ranks that the network joins.
func (o *Operations) Column() *Level { return o.column }

// last is the level of the ranks of this host, if there is one, else the level of all ranks. Allgathers end there.
func (o *Operations) last() *Level { return o.levels[len(o.levels)-1] }

// Shut has all operations that come now end with an error, and reports whether none is in flight.
func (o *Operations) Shut(err error) (idle bool) {
	o.posting.Lock()
	defer o.posting.Unlock()
	o.shut, idle = err, true
	for _, l := range o.levels {
		idle = idle && l.InFlight(overlap.Gather) == 0 && l.InFlight(overlap.Reduce) == 0
	}
	return idle
}

// Fail ends all operations.
func (o *Operations) Fail(err error) {
	for _, l := range o.levels {
		l.Fail(err)
	}
}

// Close frees what operations used, once the levels are closed. A result that the program holds stays.
func (o *Operations) Close() error { return o.outputs.close() }

// Posts returns how many operations this rank has posted.
func (o *Operations) Posts() mesh.Posted { return o.composer.posts() }

// Waited returns how long the operations of a class that are done, and well,
// have waited for what, in all. Work.Account tells it of one.
func (o *Operations) Waited(c overlap.Class) overlap.Account { return o.waited[c].Sum() }

// Busy returns for how long operations of each class, and of both at once, were in flight.
func (o *Operations) Busy() (gather, reduce, both time.Duration) { return o.meter.Times() }

// Ended are operations that have ended well.
type Ended struct{ Gathered, Switched, Direct uint64 }

// Counts are operations and bytes as callers see them, not the steps of an operation.
type Counts struct {
	Ended
	NodeSent, NodeReceived uint64    // bytes given to, and taken from, ranks of this host on a level of its own
	Shared                 uint64    // Allgathers with a result in memory that ranks share
	Bytes                  [2]uint64 // of this rank, of each class
}

// Counts returns them. column is what the lanes of the column have counted.
func (o *Operations) Counts(column Ended) Counts {
	c := o.composer.counts(column)
	if o.outputs != nil {
		c.Shared = o.outputs.gathered.Load()
	}
	for class := range c.Bytes {
		c.Bytes[class] = o.bytes[class].Load()
	}
	return c
}
