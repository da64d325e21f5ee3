package engine

import (
	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// rest is what an engine that rests, see overlap.Rester, has been given to call.
type rest struct {
	awake  atomic.Pointer[func()]
	fabric fabric.Rester // that rests as well, or nil
}

// begin keeps awake, and has the fabric rest, if there is one.
func (r *rest) begin(f fabric.Sleeper, awake func()) bool {
	r.awake.Store(&awake)
	if f == nil {
		return true
	}
	r.fabric, _ = f.(fabric.Rester)
	return r.fabric != nil && r.fabric.Rest(awake)
}

// end calls that off.
func (r *rest) end() {
	r.awake.Store(nil)
	if r.fabric != nil {
		r.fabric.Rouse()
		r.fabric = nil
	}
}

// wake ends a rest from any goroutine.
func (r *rest) wake() {
	if awake := r.awake.Load(); awake != nil {
		(*awake)()
	}
}

// Rest implements overlap.Rester.
func (g *Gather) Rest(awake func()) bool {
	if g.unreported() {
		return false
	}
	if g.failed || g.comm.Err() != nil {
		return g.rest.begin(nil, awake) && (g.failed || g.fault.Load() == nil)
	}
	if _, due := g.Deadline(); due || len(g.delayed) > 0 || len(g.lent) > 0 || g.blocked {
		return false
	}
	return g.rest.begin(g.fab, awake) && g.fault.Load() == nil
}

// Rouse implements overlap.Rester.
func (g *Gather) Rouse() { g.rest.end() }

// Rest implements overlap.Rester. A switch is spoken to though no operation is in flight.
func (r *Reduce) Rest(awake func()) bool {
	if r.conn.Load() != nil {
		return false
	}
	var streams fabric.Sleeper
	if s := r.streams.Load(); s != nil && !r.failed && r.lane.Err() == nil {
		streams = s.Streams
	}
	rests := r.rest.begin(streams, awake)
	if streams != nil {
		r.lane.Check() // the last look has perhaps found one broken
	}
	unheard := !r.failed && (r.fault.Load() != nil || r.lane.Err() != nil && !r.reported)
	return rests && len(r.orders) == 0 && !unheard
}

// Rouse implements overlap.Rester.
func (r *Reduce) Rouse() { r.rest.end() }
