package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/exchange"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Sizes that all ranks share.
const (
	// arenaBytes is each of the two receive memories for eager operations. An epoch of them
	// must also fit the receive queue of a socket beside a window of large
	// chunks, hence eagerChunks.
	arenaBytes  = 128 << 10
	eagerChunks = 128
	// reorder is how long a hole in a root's chunks may be mere reordering.
	reorder = 200 * time.Microsecond
)

// join connects this rank to the others. On an error it leaves nothing behind
// but the endpoint's peers, which Join closes.
func join(ctx context.Context, e *Endpoint, a *team.Plan) (_ *Group, err error) {
	start := time.Now()
	g := &Group{plan: a, clock: engine.NewClock(), peers: e.peers, log: e.opts.logger()}
	g.leaving.done, g.leaving.waitEnded = make(chan struct{}), make(chan error, 1)
	g.life, g.end = context.WithCancelCause(context.Background())
	joinTime := a.Settings.JoinTimeout + a.Settings.Timeout // ctx ends first, and its error tells why
	g.mesh = mesh.New(a.Rank, a.Size, nil, a.Settings.Timeout, joinTime, g.failed, g.left)
	g.monitor = monitor.New(monitor.Config{
		Plan: a, Log: g.log, Network: g.peers.Network, Seen: e.observer, Clock: g.clock, Life: g.life, Mesh: g.mesh,
		Device: g.stageStats,
	})
	stop := bootstrap.TellWaits(func(text string) { g.log.Warn(text) }, func() string { return g.awaited(a) })
	c, err := g.open(ctx)
	stop()
	if err != nil {
		err = g.whoIsMissing(ctx, err)
		var f *Fault
		own := errors.As(g.mesh.Err(), &f) && f.Rank == a.Rank && (f.Kind == mesh.Local || f.Kind == mesh.Aborted)
		if f != nil && !own && !unreached(err, f.Rank) {
			err = f // the cause rather than its consequence
		}
		g.mesh.Report(cannotJoin(ctx, a.Rank, err))
		g.end(err)
		g.mesh.Close()
		return nil, err
	}
	g.free = c.Free
	if f := g.mesh.Err(); f != nil {
		g.fail(f) // it came before there was anything to fail
	}
	g.logJoined(time.Since(start))
	g.monitor.Start()
	return g, nil
}

// unreached reports whether an error says, with its cause, that this very rank cannot be connected.
func unreached(err error, rank int) bool {
	var e *bootstrap.AbsentError
	return errors.As(err, &e) && e.Rank == rank
}

// open connects the mesh, opens the fabric over it and starts the lanes.
func (g *Group) open(ctx context.Context) (*fabrics.Opened, error) {
	if err := g.peers.Hold(ctx, g.plan); err != nil {
		return nil, err
	}
	if err := g.connectMesh(ctx); err != nil {
		return nil, err
	}
	joining, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(g.life, func() { stop(context.Cause(g.life)) })()
	plan, instead, err := bootstrap.AgreeOnWay(joining, g.plan, g.mesh, g.peers)
	if err != nil {
		return nil, err
	}
	c, err := (&fabrics.Opener{Mesh: g.mesh, Listener: g.peers, Plan: plan}).Open(joining)
	if err != nil {
		return nil, err
	}
	var found []fabrics.Warning
	if instead != "" {
		found = append(found, fabrics.Warning{Cause: "another way", Text: instead})
	}
	if where := g.peers.Elsewhere(); where != "" {
		found = append(found, fabrics.Warning{Cause: "another interface", Text: where})
	}
	c.Warnings = append(found, c.Warnings...)
	if err := g.start(c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// reasonLimit is how long a rank that cannot join stays: other ranks may still connect to it,
// and may know the reason.
const reasonLimit = time.Second

// connectMesh connects this rank to its neighbours. If it finds a rank dead, it tells all ranks
// that are connected to it, or connect within reasonLimit. Otherwise they would take this rank
// for dead when it leaves because of the other.
func (g *Group) connectMesh(caller context.Context) error {
	a := g.plan
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	defer context.AfterFunc(g.life, func() {
		select {
		case <-time.After(reasonLimit):
			stop(context.Cause(g.life))
		case <-ctx.Done():
		}
	})()
	return g.peers.ConnectEach(ctx, a, wire.PurposeMesh, mesh.Neighbours(a.Rank, a.Size), g.mesh.Add, func(err error) {
		g.mesh.Report(cannotJoin(caller, a.Rank, err))
	})
}

// whoIsMissing names a rank if the time to join is over while this one waited for answers: the
// answer may have been due from a rank that waits itself. A neighbour that is silent is missing. If
// there is none, other ranks get the time to name one, because ranks that begin together run out of
// time together.
func (g *Group) whoIsMissing(ctx context.Context, err error) error {
	var absent *bootstrap.AbsentError
	if !owntime.TimedOut(ctx) || errors.As(err, &absent) {
		return err
	}
	if _, ok := g.mesh.Silent(); ok {
		// This process may have been kept from running, and not have heard what has come meanwhile.
		select {
		case <-g.life.Done():
			return err
		case <-time.After(min(g.plan.Settings.Timeout/8, reasonLimit)):
		}
		if rank, ok := g.mesh.Silent(); ok {
			return &bootstrap.AbsentError{Rank: rank, Err: fmt.Errorf("has not answered: %w", context.Cause(ctx))}
		}
	}
	select {
	case <-g.life.Done():
	case <-time.After(reasonLimit):
	}
	return err
}

// failed ends the group with the first fault that any rank reports.
func (g *Group) failed(f *Fault) {
	g.log.Info("the group has failed", "error", f)
	g.monitor.TakeTrace(f)
	g.end(f)
	g.mu.Lock()
	ops := g.ops
	g.mu.Unlock()
	if ops != nil {
		g.fail(f)
	}
}

// fail ends all operations.
func (g *Group) fail(err error) {
	g.ops.Fail(err)
	g.messages.engine.Fail(err)
}

// start sets up the lanes over an open fabric.
func (g *Group) start(c *fabrics.Opened) error {
	g.plan = c.Plan
	a, s := c.Plan, c.Plan.Settings
	simd, err := reduce.ParseLevel(s.SIMD)
	if err != nil {
		return err
	}
	before, err := reduce.Ask(simd)
	if err != nil {
		return fmt.Errorf("MCAST_SIMD=%s: %w", s.SIMD, err)
	}
	t := c.Gather.Traits()
	g.link, g.registers, g.iface = c.Link, c.Registers, c.Interface
	info := monitor.Info{
		Rank: a.Rank, Size: a.Size, Fabric: t.Name, Reason: a.Reason, Interface: c.Interface,
		Address: a.Addrs[a.Rank].Addr().String(), Rails: append([]string{}, c.Rails...),
		ChunkBytes: t.Chunk, WindowBytes: c.Window * t.Chunk, SIMD: simd.String(), Notes: append([]string{}, t.Notes...),
		Peers: c.Peers, Unheard: append([][2]int{}, c.Unheard...), Topology: s.Topology, Ring: a.RingRanks(),
		Nodes: len(a.Nodes), NodesReason: a.LevelsReason(),
	}
	if before != simd {
		info.Notes = append(info.Notes, fmt.Sprintf("MCAST_SIMD is one for all groups of this process: "+
			"they now sum with %v, also if they asked for %v as the group before", simd, before))
	}
	if t.Lossless && s.Loss > 0 && a.Switches == 0 {
		info.Notes = append(info.Notes, "MCAST_LOSS has no effect: "+t.Name+" does not lose")
	}
	if a.Apart != "" {
		info.Notes = append(info.Notes, a.Apart+": run all ranks of a host as one user")
	}
	if a.OddSwitch {
		info.Notes = append(info.Notes, "Reduce-Scatter goes directly: "+a.NoSwitch)
	}
	var sums *engine.Reduce
	gather := engine.NewGather(engine.GatherConfig{
		Core: multicast.Config{
			Rank: a.Column.Own, Size: a.Column.Size(), Ring: a.Ring, Chunk: t.Chunk, Lossless: t.Lossless, Window: c.Window,
			Chains: a.SendersAtOnce(c.Window), Subgroups: a.Subgroups(), Eager: min(s.Eager, arenaBytes), Arena: arenaBytes,
			EagerChunks: eagerChunks, Reads: t.Reads,
			Cutoff: a.Cutoff(g.peers.Network.Cores()), Reorder: reorder, Deaf: c.Travels.By == fabrics.Unicast,
		},
		Job: a.ColumnJob(), Fabric: c.Gather, Clock: g.clock,
		Broken:   g.brokenAmong(&a.Column),
		Relay:    s.Multicast == "off",
		Link:     g.link.Fabric(),
		Priority: g.class(),
		Shared:   func() bool { return sums.InFlight() > 0 },
		Trace:    g.monitor.Traced("gather", &a.Column),
	})
	sums = engine.NewReduce(engine.ReduceConfig{
		Rank: a.Column.Own, Size: a.Column.Size(), Clock: g.clock,
		Priority: g.class(),
		Link:     g.link.Fabric(),
		Route:    newRouteDriver(g, c.Streams).run,
		Broken:   g.reduceBrokenAmong(&a.Column),
		Trace:    g.monitor.Traced("reduce", &a.Column),
	})
	levels := hierarchy.Config{
		Plan: a, Column: hierarchy.NewLevel(&a.Column, gather, sums), Shared: c.Shared, Life: g.life, Log: g.log,
		Report: g.mesh.Report, Warn: g.monitor.Warn,
		Posted: g.checkDeparted,
	}
	if g.region = c.Region; g.region != nil {
		levels.Node = g.newNode(g.region)
	}
	ops, messages := hierarchy.New(levels), g.newMessenger(c.Messages)
	g.monitor.Opened(ops, messages.engine, c, info)
	g.mu.Lock()
	g.ops, g.messages = ops, messages
	g.mu.Unlock()
	return nil
}

// brokenAmong is broken for a gather lane of some ranks, which it has by their index.
func (g *Group) brokenAmong(m *team.Members) func(index int, err error) {
	return func(index int, err error) {
		if err = fabrics.InRanks(m, err); index >= 0 {
			err = fmt.Errorf("connection to rank %d: %w", m.Rank(index), err)
		}
		g.broken(m.Rank(index), err)
	}
}

// reduceBrokenAmong is laneBroken for a reduce lane of some ranks.
func (g *Group) reduceBrokenAmong(m *team.Members) func(err error) {
	return func(err error) { g.laneBroken(fabrics.InRanks(m, err)) }
}

// laneBroken is broken for a lane over streams.
func (g *Group) laneBroken(err error) {
	var amidst *exchange.LeftError
	var lost *direct.BrokenError
	var absent *bootstrap.AbsentError
	switch {
	case errors.As(err, &amidst):
		g.mesh.Report(g.leftAmidst(amidst))
	case errors.As(err, &lost):
		g.broken(lost.Rank, lost)
	case errors.As(err, &absent):
		if errors.As(err, new(*owntime.TimeoutError)) {
			err = fabrics.CannotConnect(g.plan, absent)
		}
		g.broken(absent.Rank, err)
	default:
		g.broken(-1, err)
	}
}

// broken turns what an engine noticed into the fault that all ranks get.
func (g *Group) broken(rank int, err error) {
	var stall *sys.StallError
	var fault *Fault
	switch {
	case errors.As(err, &fault):
		g.mesh.Report(fault)
	case errors.As(err, &stall):
		g.mesh.Report(fabrics.Stalled(g.plan, g.iface, rank, stall))
	case rank >= 0:
		g.mesh.Lost(rank, err)
	default:
		g.mesh.Report(&Fault{Kind: mesh.Local, Rank: g.plan.Rank, Text: err.Error()})
	}
}
