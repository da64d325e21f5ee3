package hierarchy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/team"
)

// The result of an Allgather may lie once in memory that the ranks of a host share, instead of once
// a rank: each rank reserves a place for it, waits until that is free, and gathers into it (decision
// 0047). All ranks of a host reserve the same sizes in the same order, and so have the same places.

// outputs are the places, as one rank of a host has them.
type outputs struct {
	life    context.Context // of the group
	log     *slog.Logger
	warn    func(cause, text string)
	members *team.Members // the ranks that share them
	ring    []byte
	heads   []*head // by member
	free    func() error

	mu     sync.Mutex
	placer team.Placer
	held   map[uint64]*Output // by number
	ready  map[int]*Output    // handed-out places, by the offset at which they begin
	early  map[uint64]bool    // released while an older one is held
	closed bool

	gathered atomic.Uint64 // Allgathers with a result there
}

// head is what a member says to the others, a line of memory. Others only read it.
type head struct {
	released atomic.Uint64 // it reads none of the reservations up to this one any more
	declined atomic.Uint64 // from this reservation on none lies in the ring; 0: no such one
	_        [team.Line - 16]byte
}

// newOutputs returns the outputs of some ranks in the region that they share; nil: it has no room for any.
func newOutputs(c Config, m *team.Members) *outputs {
	mem, free := c.Shared.Output()
	if mem == nil {
		return nil
	}
	o := &outputs{
		life: c.Life, log: c.Log, warn: c.Warn, members: m, ring: mem[team.HeadsBytes(m.Size()):], free: free,
		held: map[uint64]*Output{}, ready: map[int]*Output{}, early: map[uint64]bool{},
	}
	for i := range m.Ranks {
		o.heads = append(o.heads, (*head)(unsafe.Pointer(&mem[i*team.Line])))
	}
	o.placer.Bytes = len(o.ring)
	return o
}

// own is what this rank says.
func (o *outputs) own() *head { return o.heads[o.members.Own] }

// Output is a place for the result of one Allgather, in memory that the ranks of a host share.
type Output struct {
	*outputs
	team.Place
	bytes int
	// Guarded by mu.
	used     bool // an Allgather was posted
	busy     bool // it has not ended
	released bool
}

// Reserve returns a place for the result of an Allgather of shards of so many bytes, or nil where ranks share no memory
// for it, or too little. All ranks of the group reserve the same in the same order, and either all of them or none
// gather into the reserved place. They do so as they gather into memory of their own.
func (o *Operations) Reserve(shard int) *Output {
	shared := o.outputs
	if shared == nil || shard < 1 || shard > len(shared.ring)/o.plan.Size {
		return nil
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	bytes := shard * o.plan.Size
	at, ok := shared.placer.Take((bytes + team.Page - 1) / team.Page * team.Page)
	if !ok || shared.closed {
		return nil
	}
	p := &Output{outputs: shared, Place: at, bytes: bytes}
	shared.held[at.Number] = p
	return p
}

// Wait returns the memory of a place once it is free: when no rank of the host holds what was there
// before. It is to be read, but for the own shard, which may be written before it is gathered. It
// is nil if a rank had to decline, so that the result must lie in each rank's own memory. If that
// takes until the deadline, unless it is zero, the error wraps context.DeadlineExceeded, and Wait may
// be called again.
func (p *Output) Wait(deadline time.Time) ([]byte, error) {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		switch free, holder := p.look(); {
		case free:
			return p.ring[p.From:][:p.bytes:p.bytes], nil
		case holder < 0:
			p.Release()
			return nil, nil
		case !deadline.IsZero() && !time.Now().Before(deadline):
			return nil, fmt.Errorf("rank %d holds the result of an Allgather in the place that the next one needs: a larger "+
				"MCAST_OUTPUTS than %d waits later: %w",
				p.members.Rank(holder), len(p.ring), context.DeadlineExceeded)
		}
		select {
		case <-p.life.Done():
			return nil, context.Cause(p.life)
		case <-time.After(pause):
		}
	}
}

// look reports whether a place is free, else which rank holds it; -1: nobody will use it. If this rank's own program
// holds the memory that it waits for, the rank declines this place and all later ones. It declines before it releases
// the older result, so that a rank that has seen the release sees the refusal.
func (p *Output) look() (free bool, holder int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	holder = -1
	for i, h := range p.heads {
		released := h.released.Load()
		if from := h.declined.Load(); from > 0 && from <= p.Number {
			return false, -1
		}
		if released < p.After {
			holder = i
		}
	}
	if holder >= 0 && p.stuck() {
		p.own().declined.Store(p.Number)
		p.warn("outputs", fmt.Sprintf(
			"results of Allgathers lie in each rank's own memory again: the program held one while later ones filled the %d "+
				"bytes of MCAST_OUTPUTS", len(p.ring)))
		return false, -1
	}
	if holder >= 0 {
		return false, holder
	}
	p.ready[p.From] = p
	return true, -1
}

// stuck reports whether a place waits for the program of this rank, which would wait for ever. mu is held.
func (p *Output) stuck() bool {
	for _, older := range p.held {
		if older.Number <= p.After && !older.released {
			return true
		}
	}
	return false
}

// Release gives a place back; an operation in flight there goes on first. The memory must not be
// used any more.
func (p *Output) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	p.giveBack()
}

// giveBack says to the others that a place is released, and nothing in flight there. mu is held.
func (p *Output) giveBack() {
	if !p.released || p.busy || p.held[p.Number] != p {
		return
	}
	delete(p.held, p.Number)
	if p.ready[p.From] == p {
		delete(p.ready, p.From)
	}
	p.early[p.Number] = true
	up := p.own().released.Load()
	for p.early[up+1] {
		up++
		delete(p.early, up)
	}
	p.own().released.Store(up)
	if err := p.unmap(); err != nil {
		p.log.Warn("memory of results was not given back", "error", err)
	}
}

// close lets go of the memory, once the program does.
func (o *outputs) close() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return o.unmap()
}

// unmap gives the memory back if the outputs are closed and no place is held. mu is held.
func (o *outputs) unmap() error {
	if !o.closed || len(o.held) > 0 {
		return nil
	}
	return o.free()
}
