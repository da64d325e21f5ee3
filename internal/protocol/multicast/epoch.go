package multicast

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

const (
	epochOps   = 64 // eager operations of an epoch
	arenaAlign = 64 // bytes between places in the arena
)

// epoch is the time between two barriers. Eager operations posted in it lie in an arena one behind the other; all that
// came before has been received by everybody once its barrier is complete.
//
// Epochs with something in the arena take the two arenas by turns. A rank that has entered a barrier may get chunks of
// the epoch that this barrier opens, while others, which have not entered, still fetch from the arena of the epoch
// before. So these chunks go where the operations of the epoch two before lay. Those operations are done here, or this
// rank had not entered. This rank has also received everything that was sent in the epoch in between, so all have
// entered the barrier before that one, and fetch nothing from there any more. Before a rank has entered neither need
// hold, however many epochs ahead it has posted: it takes chunks of an epoch only after it has entered the barrier of
// that epoch (Comm.entered).
type epoch struct {
	opener uint32 // the operation with the barrier that opens it
	opened uint32 // the last operation with a complete barrier; not after opener
	second bool   // which arena its operations lie in
	bytes  int    // of the arena that its operations take, at most Config.Arena
	chunks int    // of its operations, at most Config.EagerChunks
	ops    int    // that are eager, at most epochOps
}

// room returns how much of the arena an operation takes. Places are cache-line aligned, which also
// keeps elements aligned.
func room(s *shape) int { return (s.total() + arenaAlign - 1) &^ (arenaAlign - 1) }

// choose chooses how an operation travels. If the operation has a barrier, that begins an epoch.
func (e *epoch) choose(cfg *Config, seq uint32, s *shape, sync bool) mode {
	m := mode{arena: NotEager, opener: e.opener, chains: topology.NewChains(s.shards, s.shards)}
	if cfg.Lossless || cfg.Size == 1 {
		// Where all ranks multicast, their chunks show a disagreement; but two ranks that each take
		// the other for the root of a Broadcast would both wait for ever, and chunks carry no more
		// than the low 32 bits of a size.
		m.compare = cfg.Lossless && (s.coll == wire.Broadcast || s.bytes >= 1<<32)
		return m
	}
	switch {
	case s.total() <= cfg.Eager && s.all() <= cfg.EagerChunks:
		m.kind = eager
	case s.coll == wire.Broadcast && !sync && cfg.Window > 0:
		m.kind = serial
	default:
		m.kind = large
	}
	m.barrier = sync || m.kind == large || m.kind == eager && !e.fits(s, cfg) || m.kind == serial && e.overdue(seq)
	if m.barrier {
		e.begin(seq)
	}
	m.opener, m.handshake = e.opener, sync || m.kind != eager
	switch {
	case m.kind == serial:
		// Two ranks that each take themselves for the root would both wait for the other's credit.
		if m.compare = true; !m.barrier {
			m.opener = e.opened
		}
		m.window, m.share = cfg.Window, cfg.Share()
	case m.kind == eager:
		m.arena, m.second = e.take(s), e.second
	case s.coll == wire.Broadcast:
		m.window = cfg.Window
	default:
		chains := min(cfg.Chains, s.shards)
		if cfg.Window > 0 {
			chains = min(chains, cfg.Window)
		}
		m.chains, m.window = topology.NewChains(s.shards, chains), cfg.Window/chains
	}
	return m
}

// earlyMode returns the mode of an eager operation that another rank has begun.
func (e *epoch) earlyMode(s *shape, arena uint32) mode {
	return mode{kind: eager, arena: arena, second: e.second, chains: topology.NewChains(s.shards, s.shards)}
}

// fits reports whether an operation may be one more of the epoch.
func (e *epoch) fits(s *shape, cfg *Config) bool {
	return e.ops < epochOps && e.bytes+room(s) <= cfg.Arena && e.chunks+s.all() <= cfg.EagerChunks
}

// overdue reports whether the epoch must end with an operation, since its eager operations are kept until then.
func (e *epoch) overdue(seq uint32) bool { return e.ops > 0 && seq-e.opener >= epochOps }

// begin begins the epoch that the barrier of an operation opens.
func (e *epoch) begin(opener uint32) {
	e.opener = opener
	if e.bytes > 0 {
		e.second = !e.second
	}
	e.bytes, e.chunks, e.ops = 0, 0, 0
}

// take makes an eager operation one of the epoch, and returns where it lies in the arena.
func (e *epoch) take(s *shape) (arena uint32) {
	arena = uint32(e.bytes)
	e.bytes += room(s)
	e.chunks += s.all()
	e.ops++
	return arena
}

// open notes that the barrier of an operation has completed.
func (e *epoch) open(seq uint32) {
	if wire.Before(e.opened, seq) {
		e.opened = seq
	}
}

// begun reports whether the barrier that an operation has to wait for has completed.
func (e *epoch) begun(m *mode) bool { return !wire.Before(e.opened, m.opener) }

// after reports whether a barrier behind an operation has completed.
func (e *epoch) after(seq uint32) bool { return wire.Before(seq, e.opened) }
