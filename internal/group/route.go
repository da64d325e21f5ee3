package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/route"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// routeDriver carries out what a route.Router orders and tells it what happens. It runs on one
// goroutine from the first Reduce-Scatter to the end of the group.
type routeDriver struct {
	*Group
	router  *route.Router
	open    func(context.Context) (fabric.Streams, error)
	streams fabric.Streams // once they are open
	notice  uint32         // number of the latest that the router knows

	attempts chan *attempt            // that are over; at most one is under way
	cancel   context.CancelFunc       // of the one under way, else nil
	last     *attempt                 // nil once the engine has taken its connection, or it is closed
	watched  *attempt                 // the router wants to hear when it is lost; may be nil
	between  *collective.Disagreement // why a switch was lost, still to be reported; may be nil
}

func newRouteDriver(g *Group, open func(context.Context) (fabric.Streams, error)) *routeDriver {
	s := &g.plan.Settings
	return &routeDriver{
		Group: g, open: open, attempts: make(chan *attempt, 1),
		router: route.New(route.Config{
			Rank: g.plan.Rank, Switches: s.Switches()[:g.plan.Switches], NoSwitch: g.plan.NoSwitch, Timeout: s.SwitchTimeout,
		}),
	}
}

// lane is the engine whose Reduce-Scatters the route is of. It is there before the goroutine begins.
func (d *routeDriver) lane() *engine.Reduce { return d.ops.Column().Reduce }

// run is the goroutine. An error ends the group.
func (d *routeDriver) run() {
	err := d.drive()
	if err != nil && d.life.Err() == nil {
		d.laneBroken(err)
	}
	if d.cancel != nil {
		d.cancel()
		d.last = <-d.attempts
	}
	d.closeLast()
}

// drive returns when the group has ended, or nothing is left to decide.
func (d *routeDriver) drive() error {
	for event := route.Event(route.Started{}); event != nil; event = d.await() {
		orders := d.router.Handle(event)
		for len(orders) > 0 {
			answer, err := d.carryOut(orders[0])
			if err != nil {
				return err
			}
			orders = orders[1:]
			if answer != nil {
				orders = append(orders, d.router.Handle(answer)...)
			}
		}
		if d.router.Settled() {
			return nil
		}
	}
	return nil
}

// await waits for an event that answers no order, or the end of an attempt to join a switch. It
// returns nil at the end of the group.
func (d *routeDriver) await() route.Event {
	for d.life.Err() == nil {
		notice, next := d.mesh.Noticed()
		if notice.Number > d.notice {
			d.notice = notice.Number
			return route.Noticed{Epoch: notice.Number, Rank: notice.Rank, Text: notice.Text}
		}
		var path <-chan error
		var session <-chan struct{}
		if a := d.watched; a != nil {
			path, session = a.lost, a.session.Lost()
		}
		select {
		case <-d.life.Done():
		case <-next:
		case a := <-d.attempts:
			return d.attempted(a)
		case err := <-path:
			return d.lost(err)
		case <-session:
			return d.lost(d.watched.session.Err())
		}
	}
	return nil
}

// attempted takes the end of an attempt to join a switch.
func (d *routeDriver) attempted(a *attempt) route.Event {
	d.cancel()
	d.cancel, d.last = nil, a
	if a.err != nil {
		return route.JoinFailed{Reason: a.err.Error(), All: a.all, Waited: a.waited}
	}
	if a.session != nil {
		d.watched = a
	}
	return route.Joined{Operations: d.lane().Stats().Switched}
}

// lost says, once, that the switch is lost.
func (d *routeDriver) lost(err error) route.Event {
	e := route.Lost{Epoch: d.watched.epoch, Text: err.Error()}
	d.watched = nil
	var refused *session.Error
	if errors.As(err, &refused) && refused.Mismatch {
		e.Mismatch = true
		e.Text, d.between = d.inCalls(refused)
	}
	return e
}

// inCalls has a switch's word that two ranks disagree, which it gives in terms of steps, say what this rank has
// called, if it is one of the two.
func (d *routeDriver) inCalls(said *session.Error) (text string, between *collective.Disagreement) {
	if said.Between == nil || slices.Min(said.Between.Ranks[:]) < 0 {
		return said.Text, said.Between // the ranks below another switch are unknown to this one
	}
	ranks := said.Between.Ranks
	own := slices.Index(ranks[:], d.plan.Rank)
	var called string
	if own < 0 || d.lane().Do(d.life, func() { called = d.lane().Called() }) != nil || called == "" {
		return said.Text, said.Between
	}
	steps := strings.TrimPrefix(said.Text, "ranks disagree: ")
	between = &collective.Disagreement{
		Ranks: [2]int{ranks[own], ranks[1-own]},
		What:  [2]string{called, fmt.Sprintf("something else (a switch knows no more than steps: %s)", steps)},
	}
	return between.Words(""), between
}

// carryOut carries out an order and returns the answer, or nil.
func (d *routeDriver) carryOut(o route.Order) (route.Event, error) {
	switch o := o.(type) {
	case route.Agree:
		records, err := d.mesh.Agree(d.life, o.Record)
		return route.Agreed{Records: records}, err
	case route.Notify:
		d.mesh.Notify(o.Epoch, o.Text)
	case route.Report:
		d.mesh.Report(&Fault{Kind: Mismatch, Rank: d.plan.Rank, Between: d.between, Text: o.Text})
	case route.Join:
		ctx, cancel := context.WithCancel(d.life)
		d.cancel = cancel
		go func() { d.attempts <- d.join(ctx, o) }()
	case route.Cancel:
		d.cancel()
	case route.Close:
		d.closeLast()
	case route.OpenStreams:
		return route.StreamsOpen{}, d.openStreams()
	case route.Begin, route.Use, route.Stop, route.Resume:
		return d.steer(o)
	default:
		d.tell(o)
	}
	return nil, nil
}

// closeLast closes what the last attempt has brought, unless the engine has it.
func (d *routeDriver) closeLast() {
	if d.last != nil {
		d.last.close()
	}
	d.last, d.watched = nil, nil
}

// steer carries out an order to the engine.
func (d *routeDriver) steer(o route.Order) (route.Event, error) {
	switch o := o.(type) {
	case route.Begin:
		if o.Switched {
			return nil, d.handOver(func(u *reducescatter.SwitchConn) { d.lane().Begin(o.Epoch, u, nil) })
		}
		return nil, d.lane().Do(d.life, func() { d.lane().Begin(o.Epoch, nil, d.streams) })
	case route.Use:
		return nil, d.handOver(d.lane().Join)
	case route.Stop:
		d.watched = nil
		var record []byte
		var left *reducescatter.SwitchConn
		err := d.lane().Do(d.life, func() { record, left = d.lane().Stop(o.Epoch) })
		if left != nil {
			_ = left.Close() // the error is about a switch that nobody uses any more
		}
		return route.Stopped{Record: record}, err
	case route.Resume:
		var err error
		e := d.lane().Do(d.life,
			func() { err = d.lane().Resume(team.Pick(&d.plan.Column, o.Records), d.streams) })
		return route.Resumed{Operations: d.lane().Stats().Switched},
			errors.Join(e, fabrics.InRanks(&d.plan.Column, err))
	}
	panic(fmt.Sprintf("group: %T is no order to the engine", o))
}

// handOver gives the engine what the last attempt has brought, if anything.
func (d *routeDriver) handOver(to func(*reducescatter.SwitchConn)) error {
	var err error
	if a := d.last; a.conn != nil {
		err = d.lane().Do(d.life, func() { to(a.conn) })
	}
	if err == nil {
		d.last = nil
	}
	return err
}

// tell carries out an order to tell people something.
func (d *routeDriver) tell(o route.Order) {
	switch o := o.(type) {
	case route.SetReason:
		d.monitor.SetRoute(monitor.Route{Reason: o.Reason})
	case route.TellDirect:
		d.log.Warn("reduce-scatter goes directly", "reason", o.Reason)
	case route.TellLost:
		d.monitor.Fallback()
		d.log.Warn("reduce-scatter goes directly", "reason", o.Reason)
		d.monitor.Note("switch lost", "Reduce-Scatter went directly for a while: "+o.Reason)
	case route.TellSwitched:
		if !d.plan.Crosses() {
			return // Info says who stands for this rank
		}
		how := "sums in a fixed order"
		if d.plan.Settings.SwitchMode == "fast" {
			how = "sums as contributions arrive"
		}
		d.monitor.SetRoute(monitor.Route{
			Reason: d.monitor.Route().Reason, Via: fmt.Sprintf("the switch at %s %s", o.Address, how),
		})
		level := slog.LevelInfo
		if o.Epoch > 1 {
			level = slog.LevelWarn // users who were told of the loss want to know of the return
		}
		d.log.Log(context.Background(), level, "reduce-scatter goes through the switch", "switch", o.Address, "epoch",
			o.Epoch)
	case route.TellFailure:
		d.log.Debug("cannot join a switch", "epoch", o.Epoch, "error", o.Reason)
	default:
		panic(fmt.Sprintf("group: unknown order %T", o))
	}
}

// overdue is how late a rank may be before the others say that they wait for it.
const overdue = 10 * time.Second

// openStreams waits for every rank, however late it comes to its first reduction.
func (d *routeDriver) openStreams() (err error) {
	late := time.AfterFunc(overdue, func() {
		if ranks := d.peers.Absent(d.plan, wire.PurposeStream); len(ranks) > 0 {
			d.log.Warn("waiting for ranks that have not begun a Reduce-Scatter, Reduce or large Allreduce", "ranks", ranks)
		}
		for rank, err := range d.peers.Unreached() {
			d.log.Warn("a rank cannot be reached yet", "peer", rank, "error", err)
		}
	})
	defer late.Stop()
	d.streams, err = d.open(d.life)
	return err
}
