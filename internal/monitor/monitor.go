package monitor

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// Config says what is watched, and who sees it.
type Config struct {
	Plan    *team.Plan
	Log     *slog.Logger
	Network hostnet.Interfaces
	Seen    Observer
	Clock   engine.Clock    // of all lanes
	Life    context.Context // of the group
	Mesh    *mesh.Mesh
	Device  func() staging.Stats // of operations on device memory
}

// Monitor watches a group and tells of it: counters and facts, waits, warnings, pages and traces.
type Monitor struct {
	plan    *team.Plan
	log     *slog.Logger
	network hostnet.Interfaces
	seen    Observer
	clock   engine.Clock
	life    context.Context
	mesh    *mesh.Mesh
	device  func() staging.Stats

	// A fault may come while the group joins, and plan is replaced: it reads these.
	rank    int
	traceTo string // MCAST_TRACE

	// These are there once the fabric is open.
	ops      *hierarchy.Operations
	messages *engine.Exchange
	info     Info
	travels  fabrics.Travel // how Allgathers travelled when the group was joined

	route    atomic.Pointer[Route]
	counters counters
	warnings warnings
	waiting  atomic.Pointer[[]Waiting]
	recent   Recent // which ranks were waited for most in recent time

	traces   []*trace.Lane           // what lanes did last; none: MCAST_TRACE is off
	failure  atomic.Pointer[failure] // the fault, and the trace of this process until then
	unrecord func()                  // takes the group from the traces of this process; nil: it is in none
	withdraw func()                  // removes its page for other processes; nil: it has none

	telling  sync.Mutex     // what this rank says of itself, to those who ask over the mesh
	released bool           // there is nothing to say any more; guarded by telling
	watchers sync.WaitGroup // goroutines that end with life
}

// New returns the monitor of a group that joins.
func New(c Config) *Monitor {
	m := &Monitor{
		plan: c.Plan, rank: c.Plan.Rank, traceTo: c.Plan.Settings.Trace, log: c.Log, network: c.Network, seen: c.Seen,
		clock: c.Clock, life: c.Life, mesh: c.Mesh, device: c.Device,
	}
	m.SetRoute(Route{Reason: c.Plan.NoSwitch})
	return m
}

// Opened tells of what the group is, once its fabric is open.
func (m *Monitor) Opened(ops *hierarchy.Operations, messages *engine.Exchange, c *fabrics.Opened, info Info) {
	m.plan, m.ops, m.messages, m.info, m.travels = c.Plan, ops, messages, info, c.Travels
	for _, w := range c.Warnings {
		m.warnings.add(w.Cause, w.Text) // the group logs its notes when it has joined
	}
}

// Start begins to watch, and to tell others.
func (m *Monitor) Start() {
	m.record()
	m.watchers.Go(func() {
		(&watcher{Monitor: m}).run()
		m.writeTrace()
	})
	m.publish()
}

// Withdraw ends what others see of the group: from now on nobody reads the memory that it frees.
func (m *Monitor) Withdraw() {
	m.telling.Lock()
	m.released = true
	m.telling.Unlock()
	if m.withdraw != nil {
		m.withdraw()
	}
	if m.unrecord != nil {
		m.unrecord()
	}
}

// Wait waits until nothing watches any more, after the end of the group's life.
func (m *Monitor) Wait() { m.watchers.Wait() }
