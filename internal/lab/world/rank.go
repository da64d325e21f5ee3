package world

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// meetingPoint is where rank 0 listens.
const meetingPoint = "10.0.0.1:7000"

// mostAsync is how many operations a rank has under way at most.
const mostAsync = 6

// outcome is what a rank sees of a step.
type outcome struct {
	begun, ended bool
	at, end      time.Duration
	err          error
	wrong        string // bytes
	bits         uint64 // a hash of what an Allreduce gave; 0: it was none
}

// rank is a process: it joins, makes its calls, and closes.
type rank struct {
	s      *Scenario
	number int
	host   *Host
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	steps    []outcome
	departed bool // killed, or left on purpose
	gone     bool // its program has ended
	ops      int  // calls that succeeded
	through  int  // of them, reductions that went through a switch

	kept []kept // its own goroutine's

	before, after int    // operations through a switch, up to Return and with those there; -1: it did not come so far
	way           string // how Reduce-Scatters go at the end
}

func (r *rank) now() time.Duration { return time.Since(r.host.world.start) }

func (r *rank) step(n int) outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.steps[n]
}

// over reports whether the rank comes to no further step.
func (r *rank) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone || r.departed
}

func (r *rank) begin(step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps[step].begun, r.steps[step].at = true, r.now()
}

func (r *rank) end(step int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.steps[step]
	o.ended, o.end = true, r.now()
	if o.err == nil {
		o.err = err
	}
}

// depart notes that what happens to the rank from now on is its own affair.
func (r *rank) depart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.departed = true
}

// settings are those of the scenario.
func (s *Scenario) settings(rank int) config.Settings {
	c := config.Default()
	c.Fabric, c.Timeout, c.JoinTimeout, c.Chunk, c.Chains = "udp", s.Timeout, joinTimeout, s.Chunk, s.Chains
	if s.Fabric != "" {
		c.Fabric = s.Fabric
	}
	if s.Flat {
		c.Nodes = "off"
	}
	c.Outputs = s.Outputs
	if s.Racks > 0 {
		c.Topology = fmt.Sprintf("row%d/rack%d", s.Net.place(rank)%s.Racks/2, s.Net.place(rank)%s.Racks)
	}
	if s.ShmSlots > 0 {
		c.ShmSlots = s.ShmSlots
	}
	if s.ShmChunk > 0 {
		c.ShmChunk = s.ShmChunk
	}
	if len(s.Nodes) > 0 {
		c.Switch, c.SwitchTimeout = s.via(rank), s.SwitchTimeout
		if s.Fast {
			c.SwitchMode = "fast"
		}
		if s.Nodes[0].Secret {
			c.Secret, c.Encrypt = secret, s.Net.Ranks%2 == 1 // to and from the switch: either is tried
		}
	}
	return c
}

// run is the program of a rank.
func (r *rank) run() {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.gone = true
	}()
	time.Sleep(r.s.lateness(r.number, 0))
	r.begin(0)
	g, err := r.join()
	r.end(0, err)
	if err != nil {
		return
	}
	if r.calls(g) {
		return
	}
	r.through = int(g.Stats().SwitchOps)
	if r.well() {
		r.goBack(g)
	}
	last := r.s.steps() - 1
	time.Sleep(r.s.lateness(r.number, last))
	r.begin(last)
	r.end(last, g.Close())
}

func (r *rank) join() (*group.Group, error) {
	e, err := group.Open(group.Options{
		Rank: r.number, Size: r.s.Net.Ranks, Settings: r.s.settings(r.number), Network: r.host, Logger: r.log,
	})
	for err != nil && r.ctx.Err() == nil && lacks(err) {
		time.Sleep(100 * time.Millisecond) // a script that is started again
		e, err = group.Open(group.Options{
			Rank: r.number, Size: r.s.Net.Ranks, Settings: r.s.settings(r.number), Network: r.host, Logger: r.log,
		})
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.ctx, joinTimeout)
	defer cancel()
	blobs, err := e.Rendezvous(ctx, meetingPoint)
	for err != nil && ctx.Err() == nil && lacks(err) {
		time.Sleep(100 * time.Millisecond)
		blobs, err = e.Rendezvous(ctx, meetingPoint)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e.Join(r.ctx, blobs)
}

// well reports whether all steps so far have ended as they should.
func (r *rank) well() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.steps, func(o outcome) bool { return o.err != nil || o.wrong != "" })
}

// goBack reduces until that goes through a switch again.
func (r *rank) goBack(g *group.Group) {
	if r.s.Return == 0 {
		return
	}
	time.Sleep(r.s.Return - r.now())
	step := len(r.s.Calls) + 1
	r.begin(step)
	before := int(g.Stats().SwitchOps)
	const n = 4 // elements
	send, recv := inputs(reduce.F32, step, r.number, 0, n*r.s.Net.Ranks), make([]byte, 4*n)
	results := map[string]bool{}
	wrong := ""
	var err error
	for i := 0; i < returning && err == nil && wrong == ""; i++ {
		if err = g.ReduceScatter(send, recv, reduce.F32, reduce.Sum, 1); err == nil {
			wrong = r.s.sums(recv, reduce.F32, step, r.number, r.number*n)
			results[string(recv)] = true
		}
	}
	if ways := 1 + len(r.s.Ways); len(results) > ways && !r.s.Fast {
		wrong = fmt.Sprintf("the same inputs have given %d results; want at most %d: directly, and through each switch",
			len(results), ways)
	}
	r.end(step, err)
	r.mu.Lock()
	r.steps[step].wrong = wrong
	r.mu.Unlock()
	if err == nil {
		r.before, r.after, r.way = before, int(g.Stats().SwitchOps), fmt.Sprintf("%+v", g.Info())
	}
}

// pending is an operation under way.
type pending struct {
	step  int
	work  *group.Work
	also  *group.Message // a receive beside it; nil: there is none
	check func() string
}

// calls makes all calls; it reports whether the group is closed already.
func (r *rank) calls(g *group.Group) (closed bool) {
	var async []pending
	finish := func(keep int) bool {
		for len(async) > keep {
			if !r.wait(&async[0]) {
				for i := range async[1:] {
					r.wait(&async[1+i])
				}
				async = nil
				return false
			}
			async = async[1:]
		}
		return true
	}
	for i := range r.s.Calls {
		step := i + 1
		c := r.s.call(r.number, step)
		time.Sleep(r.s.Pause + r.s.lateness(r.number, step) + r.s.slowness(r.number))
		waited := step
		if len(async) > 0 {
			waited = async[0].step
		}
		r.letGo(step, waited)
		if e := r.s.event(r.number, step); e != nil {
			if !finish(0) {
				return false
			}
			r.depart()
			if e.Deed == Abort {
				_ = g.Abort("its script ended with ValueError: as the scenario says")
			} else {
				_ = g.Close()
			}
			return true
		}
		if !c.Async && !finish(0) || !finish(mostAsync-1) {
			return false
		}
		p, err := r.start(g, step, &c)
		if err != nil {
			r.end(step, err)
			finish(0)
			return false
		}
		if async = append(async, p); !c.Async && !finish(0) {
			return false
		}
	}
	finish(0)
	r.letGo(math.MaxInt, math.MaxInt)
	return false
}

// wait waits for an operation and reports whether all is well.
func (r *rank) wait(p *pending) bool {
	err := p.work.Wait(r.ctx)
	if err == nil && p.also != nil {
		err = p.also.Wait(r.ctx)
	}
	wrong := ""
	if err == nil {
		wrong = p.check()
	}
	if errors.Is(err, context.Canceled) {
		r.end(p.step, err) // the operation has not ended, or the rank was killed
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.steps[p.step].wrong = wrong; err == nil && wrong == "" {
		r.ops++
	}
	return err == nil && wrong == ""
}

// note keeps which bits an Allreduce gave.
func (r *rank) note(step int, result []byte) {
	h := fnv.New64a()
	_, _ = h.Write(result)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps[step].bits = h.Sum64()
}

// start posts a call. Of buffers every byte is known.
func (r *rank) start(g *group.Group, step int, c *Call) (p pending, err error) {
	p.step = step
	r.begin(step)
	release := func() {}
	size, n := r.s.Net.Ranks, c.Bytes
	in := func(b []byte, from, first int) []byte {
		for k := range b {
			b[k] = given(step, from, first+k)
		}
		return b
	}
	switch c.Kind {
	case Allgather:
		var recv []byte
		if recv, err = r.memory(g, step, n, c); err != nil {
			return p, err
		}
		p.check = func() string { return differs(recv, func(k int) byte { return given(step, k/n, k%n) }) }
		own := in(make([]byte, n), r.number, 0)
		release = r.register(g, own, recv)
		p.work, err = g.StartAllgather(own, recv)
	case Broadcast:
		buf := make([]byte, n)
		if r.number == c.Root {
			in(buf, c.Root, 0)
		}
		p.check = func() string { return differs(buf, func(k int) byte { return given(step, c.Root, k) }) }
		release = r.register(g, buf)
		p.work, err = g.StartBroadcast(buf, c.Root)
	case Barrier:
		p.check = func() string { return "" }
		p.work, err = g.StartBarrier()
	case ReduceScatter:
		n /= c.Type.Size()
		recv := make([]byte, n*c.Type.Size())
		p.check = func() string { return r.s.sums(recv, c.Type, step, r.number, r.number*n) }
		p.work, err = g.StartReduceScatter(inputs(c.Type, step, r.number, 0, size*n), recv, c.Type, reduce.Sum, 1)
	case Reduce:
		n /= c.Type.Size()
		var recv []byte
		if r.number == c.Root {
			recv = make([]byte, n*c.Type.Size())
		}
		p.check = func() string { return r.s.sums(recv, c.Type, step, c.Root, 0) }
		p.work, err = g.StartReduce(inputs(c.Type, step, r.number, 0, n), recv, c.Type, reduce.Sum, 1, c.Root)
	case Allreduce:
		n /= c.Type.Size()
		recv := make([]byte, n*c.Type.Size())
		p.check = func() string {
			r.note(step, recv)
			return r.s.sumsOfAll(recv, c.Type, step)
		}
		p.work, err = g.StartAllreduce(inputs(c.Type, step, r.number, 0, n), recv, c.Type, reduce.Sum, 1)
	case Shift:
		to, from := (r.number+1)%size, (r.number+size-1)%size
		buf := make([]byte, n)
		p.check = func() string { return differs(buf, func(k int) byte { return given(step, from, k) }) }
		source := from
		if step%3 == 0 {
			source = group.AnySource // no other rank sends here with this tag
		}
		if p.also, err = g.StartReceive(buf, source, uint64(step)); err != nil {
			return p, err
		}
		var sent *group.Message
		if sent, err = g.StartSend(in(make([]byte, n), r.number, 0), to, uint64(step)); err == nil {
			p.work = sent.Work
		}
	case AllToAll:
		recv := make([]byte, n*size)
		p.check = func() string { return differs(recv, func(k int) byte { return given(step, k/n, r.number*n+k%n) }) }
		sizes := slices.Repeat([]int{n}, size)
		p.work, err = g.StartAllToAll(in(make([]byte, n*size), r.number, 0), recv, sizes, sizes)
	}
	if err == nil {
		p.work.OnDone(func(err error) {
			release()
			r.end(step, err)
		})
	}
	return p, err
}

// register registers buffers until release is called, if this rank does.
func (r *rank) register(g *group.Group, buffers ...[]byte) (release func()) {
	var memories []*group.Memory
	for _, b := range buffers {
		if len(b) == 0 || r.number >= r.s.Registered {
			continue
		}
		if m, err := g.Register(b); err == nil { // the group may be over
			memories = append(memories, m)
		}
	}
	return func() {
		for _, m := range memories {
			_ = m.Release()
		}
	}
}

// given is byte k of what a rank gives to a call.
func given(step, rank, k int) byte { return byte(step*31 + rank*17 + k*7 + k>>8) }

// summed is byte k of the sum of what all give.
func summed(step, size, k int) byte {
	return byte(size*(step*31+k*7+k>>8) + 17*size*(size-1)/2)
}

// differs says where a buffer has wrong bytes.
func differs(got []byte, want func(k int) byte) string {
	for k := range got {
		if got[k] != want(k) {
			return fmt.Sprintf("byte %d of %d is %d, not %d", k, len(got), got[k], want(k))
		}
	}
	return ""
}
