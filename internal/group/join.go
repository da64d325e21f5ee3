package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
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

// transports are an opened fabric: its two kinds of traffic.
type transports struct {
	gather fabric.Gather
	// registers is gather, if its device can send from the user's memory; nil: it copies.
	registers fabric.Registers
	by        gathering
	peers     []Peer
	unheard   [][2]int                                      // ranks, from and to, between which multicast does not pass
	streams   func(context.Context) (fabric.Streams, error) // opened when first needed
	iface     string
	rails     []string       // further interfaces
	region    hostnet.Region // of this rank's node; nil: there are no nodes
	shared    hostnet.Region // region, or the region of all ranks; nil: there is none
	link      *sending       // nil: nothing leaves the host
	found     []warning      // while it was opened
	free      func() error
}

// join connects this rank to the others. On an error it leaves nothing behind
// but the endpoint's lobby, which Join closes.
func join(ctx context.Context, e *Endpoint, a *team.Plan) (_ *Group, err error) {
	start := time.Now()
	g := &Group{agreed: a, meter: new(overlap.Meter), clock: engine.NewClock(), lobby: e.lobby, log: e.opts.logger(), observer: e.observer,
		gone: make(chan struct{}), impatient: make(chan error, 1)}
	g.books.open(&g.waited)
	g.life, g.end = context.WithCancelCause(context.Background())
	joinTime := a.Settings.JoinTimeout + a.Settings.Timeout // ctx ends first, and its error tells why
	g.mesh = mesh.New(a.Rank, a.Size, nil, a.Settings.Timeout, joinTime, g.failed, g.left)
	stop := tellWaits(func(text string) { g.log.Warn(text) }, g.awaited())
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
	g.free = c.free
	if f := g.mesh.Err(); f != nil {
		g.fail(f) // it came before there was anything to fail
	}
	g.logJoined(time.Since(start))
	g.record()
	g.watchers.Go(func() {
		(&monitor{Group: g}).run()
		g.writeTrace()
	})
	g.publish()
	return g, nil
}

// unreached reports whether an error says, with its cause, that this very rank cannot be connected.
func unreached(err error, rank int) bool {
	var e *absentError
	return errors.As(err, &e) && e.rank == rank
}

// open connects the mesh, opens the fabric over it and starts the lanes.
func (g *Group) open(ctx context.Context) (*transports, error) {
	if err := g.lobby.hold(ctx, g.agreed); err != nil {
		return nil, err
	}
	if err := g.connectMesh(ctx); err != nil {
		return nil, err
	}
	joining, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(g.life, func() { stop(context.Cause(g.life)) })()
	found, err := agreeOnWay(joining, g.agreed, g.mesh, g.lobby)
	if err != nil {
		return nil, err
	}
	c, window, err := open(joining, g.mesh, g.lobby, g.agreed)
	if err != nil {
		return nil, err
	}
	if where := g.lobby.elsewhereOf(); where != "" {
		found = append(found, warning{"another interface", where})
	}
	c.found = append(found, c.found...)
	if err := g.start(c, window); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close gives back what no engine has taken over.
func (c *transports) close() error {
	err := errors.Join(c.gather.Close(), c.free())
	if c.region != nil {
		err = errors.Join(err, c.region.Close())
	}
	return err
}

// reasonPatience is how long a rank that cannot join stays: other ranks may still connect to it,
// and may know the reason.
const reasonPatience = time.Second

// connectMesh connects this rank to its neighbours. If it finds a rank dead, it tells all ranks
// that are connected to it, or connect within reasonPatience. Otherwise they would take this rank
// for dead when it leaves because of the other.
func (g *Group) connectMesh(caller context.Context) error {
	a := g.agreed
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	defer context.AfterFunc(g.life, func() {
		select {
		case <-time.After(reasonPatience):
			stop(context.Cause(g.life))
		case <-ctx.Done():
		}
	})()
	return g.lobby.connectEach(ctx, a, wire.PurposeMesh, mesh.Neighbours(a.Rank, a.Size), g.mesh.Add, func(err error) {
		g.mesh.Report(cannotJoin(caller, a.Rank, err))
	})
}

// whoIsMissing names a rank if the time to join is over while this one waited for answers: the
// answer may have been due from a rank that waits itself. A neighbour that is silent is missing. If
// there is none, other ranks get the time to name one, because ranks that begin together run out of
// time together.
func (g *Group) whoIsMissing(ctx context.Context, err error) error {
	var absent *absentError
	if !timedOut(ctx) || errors.As(err, &absent) {
		return err
	}
	if _, ok := g.mesh.Silent(); ok {
		// This process may have been kept from running, and not have heard what has come meanwhile.
		select {
		case <-g.life.Done():
			return err
		case <-time.After(min(g.agreed.Settings.Timeout/8, reasonPatience)):
		}
		if rank, ok := g.mesh.Silent(); ok {
			return &absentError{rank, fmt.Errorf("has not answered: %w", context.Cause(ctx))}
		}
	}
	select {
	case <-g.life.Done():
	case <-time.After(reasonPatience):
	}
	return err
}

// failed ends the group with the first fault that any rank reports.
func (g *Group) failed(f *Fault) {
	g.log.Info("the group has failed", "error", f)
	g.takeTrace(f)
	g.end(f)
	g.mu.Lock()
	started := g.started
	g.mu.Unlock()
	if started {
		g.fail(f)
	}
}

func (g *Group) fail(err error) {
	for _, l := range g.levels {
		l.fail(err)
	}
}

// joinResult is what ranks tell each other about opening the fabric.
type joinResult struct {
	Error  string `json:"e,omitempty"`
	Window int    `json:"w"` // chunks
	Chunk  int    `json:"c"`
	Shm    string `json:"s,omitempty"` // of a rank that serves a region: where
}

// exchange tells all ranks a result, or why there is none, and returns those of all.
func exchange(ctx context.Context, m *mesh.Mesh, mine joinResult, err error) ([]joinResult, error) {
	if err != nil {
		mine.Error = err.Error()
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	records, err := m.Agree(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]joinResult, len(records))
	for r := range records {
		if err := json.Unmarshal(records[r], &all[r]); err != nil {
			return nil, fmt.Errorf("result of rank %d: %w", r, err)
		}
	}
	return all, nil
}

// agree exchanges results. If any rank has failed, all do, with its reason.
func agree(ctx context.Context, m *mesh.Mesh, mine joinResult, err error) ([]joinResult, error) {
	all, e := exchange(ctx, m, mine, err)
	if err != nil {
		return nil, err // perhaps why others do not answer
	}
	if e != nil {
		return nil, e
	}
	for r := range all {
		if all[r].Error != "" {
			return nil, &Fault{Kind: Aborted, Rank: r, Text: "it cannot join: " + all[r].Error}
		}
	}
	return all, nil
}

// open opens the fabric agreed on on all ranks, or on none.
func open(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan) (*transports, int, error) {
	c, err := openFabric(ctx, m, l, a)
	var mine joinResult
	if err != nil {
		tellOthers(ctx, m, a.Rank, err)
	} else {
		t := c.gather.Traits()
		mine.Window, mine.Chunk = t.Window, t.Chunk
	}
	all, err := agree(ctx, m, mine, err)
	// Two operations may be under way at the same time, so each has half of
	// what a queue surely holds.
	window := mine.Window
	for r := range all {
		window = min(window, all[r].Window)
		if all[r].Chunk != mine.Chunk {
			err = fmt.Errorf("rank %d has chunks of %d bytes, rank %d of %d; set MCAST_CHUNK", r, all[r].Chunk, a.Rank, mine.Chunk)
		}
	}
	if err != nil && c != nil {
		err = errors.Join(err, c.close())
	}
	if window > 1 {
		window /= 2
	}
	return c, window, err
}

// openFabric opens the fabric agreed on, and the region of this rank's host.
func openFabric(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan) (c *transports, err error) {
	region, found, err := settleRegion(ctx, m, l, a)
	if err != nil {
		return nil, err
	}
	l.expect(callers(a))
	if a.Fabric == "shm" {
		return openShm(a, region), nil
	}
	if c, err = fabrics[a.Fabric](ctx, m, l, a); err != nil {
		if region != nil {
			err = errors.Join(err, region.Close())
		}
		return nil, err
	}
	if region != nil {
		c.region, c.shared = region, region
	}
	c.found = append(found, c.found...)
	return c, nil
}

// tellOthers spares the other ranks, which may wait for this one's connections, waiting until their time is over.
func tellOthers(ctx context.Context, m *mesh.Mesh, rank int, err error) {
	var absent *absentError
	var fault *Fault
	switch {
	case ctx.Err() != nil: // they know, or their time is over, too
	case errors.As(err, &fault):
		m.Report(fault) // all come to the same conclusion
	case errors.As(err, &absent):
		m.Lost(absent.rank, absent)
	default:
		m.Report(&Fault{Kind: mesh.Local, Rank: rank, Text: err.Error()})
	}
}

// start sets up the two lanes over an open fabric.
func (g *Group) start(c *transports, window int) error {
	a, s := g.agreed, g.agreed.Settings
	simd, err := reduce.ParseLevel(s.SIMD)
	if err != nil {
		return err
	}
	if err := reduce.Use(simd); err != nil {
		return fmt.Errorf("MCAST_SIMD=%s: %w", s.SIMD, err)
	}
	t := c.gather.Traits()
	g.link, g.joinedBy, g.registers = c.link, c.by, c.registers
	g.info = Info{
		Rank: a.Rank, Size: a.Size, Fabric: t.Name, Reason: a.Reason, Interface: c.iface,
		Address: a.Addrs[a.Rank].Addr().String(), Rails: append([]string{}, c.rails...),
		ChunkBytes: t.Chunk, WindowBytes: window * t.Chunk, SIMD: simd.String(), Notes: append([]string{}, t.Notes...),
		Peers: c.peers, Unheard: append([][2]int{}, c.unheard...), Topology: s.Topology, Ring: a.RingRanks(), Nodes: len(a.Nodes), NodesReason: a.LevelsReason(),
	}
	for _, w := range c.found {
		g.warnings.add(w.cause, w.text) // logJoined logs it
	}
	if t.Lossless && s.Loss > 0 && a.Switches == 0 {
		g.info.Notes = append(g.info.Notes, "MCAST_LOSS has no effect: "+t.Name+" does not lose")
	}
	if a.Apart != "" {
		g.info.Notes = append(g.info.Notes, a.Apart+": run all ranks of a host as one user")
	}
	if a.OddSwitch {
		g.info.Notes = append(g.info.Notes, "Reduce-Scatter goes directly: "+a.NoSwitch)
	}
	var sums *engine.Reduce
	gather := engine.NewGather(engine.GatherConfig{
		Core: multicast.Config{
			Rank: a.Column.Own, Size: a.Column.Size(), Ring: a.Ring, Chunk: t.Chunk, Lossless: t.Lossless, Window: window,
			Chains: a.SendersAtOnce(window), Subgroups: a.Subgroups(), Eager: min(s.Eager, arenaBytes), Arena: arenaBytes, EagerChunks: eagerChunks, Reads: t.Reads,
			Cutoff: a.Cutoff(g.lobby.network.Cores()), Reorder: reorder, Deaf: c.by.by == byUnicast,
		},
		Job: a.ColumnJob(), Fabric: c.gather, Clock: g.clock,
		Broken:   g.brokenAmong(&a.Column),
		Relay:    s.Multicast == "off",
		Link:     g.link.fabric(),
		Priority: g.class(),
		Shared:   func() bool { return sums.InFlight() > 0 },
		Trace:    g.traced("gather"),
	})
	g.route.Store(&routeInfo{reason: a.NoSwitch})
	sums = engine.NewReduce(engine.ReduceConfig{
		Rank: a.Column.Own, Size: a.Column.Size(), Clock: g.clock,
		Priority: g.class(),
		Link:     g.link.fabric(),
		Route:    newRouteDriver(g, c.streams).run,
		Broken:   g.reduceBrokenAmong(&a.Column),
		Trace:    g.traced("reduce"),
	})
	g.column = newLevel(&a.Column, gather, sums)
	g.levels, g.composer = []*level{g.column}, flat{g}
	if g.region = c.region; g.region != nil {
		node := g.newNode(g.region)
		g.levels, g.composer = append(g.levels, node), &nested{Group: g, node: node}
	}
	if c.shared != nil {
		g.outputs = newOutputs(g, c.shared)
	}
	g.mu.Lock()
	g.started = true
	g.mu.Unlock()
	return nil
}

// brokenAmong is broken for a gather lane of some ranks, which it has by their index.
func (g *Group) brokenAmong(m *team.Members) func(index int, err error) {
	return func(index int, err error) {
		if err = inRanks(m, err); index >= 0 {
			err = fmt.Errorf("connection to rank %d: %w", m.Rank(index), err)
		}
		g.broken(m.Rank(index), err)
	}
}

// reduceBrokenAmong is reduceBroken for a reduce lane of some ranks.
func (g *Group) reduceBrokenAmong(m *team.Members) func(err error) {
	return func(err error) { g.reduceBroken(inRanks(m, err)) }
}

// reduceBroken is broken for the reduce lane.
func (g *Group) reduceBroken(err error) {
	var lost *direct.BrokenError
	var absent *absentError
	switch {
	case errors.As(err, &lost):
		g.broken(lost.Rank, lost)
	case errors.As(err, &absent):
		if errors.As(err, new(*TimeoutError)) {
			err = g.cannotConnect(absent)
		}
		g.broken(absent.rank, err)
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
		g.mesh.Report(g.stalled(rank, stall))
	case rank >= 0:
		g.mesh.Lost(rank, err)
	default:
		g.mesh.Report(&Fault{Kind: mesh.Local, Rank: g.agreed.Rank, Text: err.Error()})
	}
}
