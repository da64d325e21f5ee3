// Package multicast is the multicast protocol of Khalilov et al., SC24, sections III and IV, as
// a pure state machine: reliable Broadcast over unreliable multicast, and
// Allgather as a composition of Broadcasts. It has no clock, socket,
// goroutine, lock or random source; it does not even touch the bytes, only
// their addresses. Whoever drives it (internal/engine over a fabric,
// internal/lab/sim in virtual time) tells it what happened and asks what to do:
//
//	what happened             what to do next
//	Post                      NextRun, Sent       chunks to multicast
//	Place, Received           NextControl         messages on the reliable path
//	Control                   NextRepair, Repaired chunks the right neighbour lacks
//	Expire (see Deadline)     NextDone            completions
//	Fail
//
// An operation takes one of two roads. A large one is announced by a
// dissemination barrier, so that every rank has its receive buffer ready (RNR
// synchronisation, III-C); its roots take turns (the sequencer, IV-A) and send as
// far as the slowest receiver's credit allows; chunks land in the user's
// buffer; and a rank keeps its buffer until its right neighbour is complete (final
// handshake). A small one is eager: every rank holds an arena of receive
// memory ready for small operations at all times, so they are sent at once.
// Barriers between them bound how far ranks drift apart: they open an epoch,
// and all that was sent eagerly before has been received by everybody when one
// completes (docs/decisions/0002).
package multicast

import (
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Limits of the protocol.
const (
	// MaxRanks and MaxSubgroups are what the headers have room for.
	MaxRanks     = 1 << 16
	MaxSubgroups = 1 << 8
	// MaxInFlight is how many operations may be posted and not done.
	MaxInFlight = 32
	// epochOps is how many eager operations an epoch holds.
	epochOps = 64
	// slots is the number of operations that a rank can know about at once:
	// those it keeps for its neighbour, its own in flight, and those that
	// faster ranks have begun. A power of two.
	slots = 256
	// maxChunks bounds the chunks of a whole buffer.
	maxChunks = 1 << 31
	// NotEager in a Data header's Arena marks a chunk for the user's buffer.
	NotEager = ^uint32(0)
)

// Time is a moment: how long after some fixed one. It must not go backwards.
type Time = time.Duration

// ErrBusy is returned by Post when Room is 0.
var ErrBusy = errors.New("multicast: 32 operations are in flight already; wait for one")

// MismatchError says that two ranks disagree about an operation.
type MismatchError struct {
	Seq   uint32
	Ranks [2]int
	What  [2]string
}

// Error names the operation, the ranks and what each of them called.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("ranks disagree about operation %d: rank %d called %s, rank %d %s",
		e.Seq, e.Ranks[0], e.What[0], e.Ranks[1], e.What[1])
}

// Config holds what all ranks of a communicator must agree on, and a rank's place in it.
type Config struct {
	Rank, Size int
	Chunk      int // payload bytes of a chunk
	// Lossless says that the fabric delivers every chunk once, in order, and
	// holds those of operations not posted yet. Barrier, sequencer, repair
	// and handshake are then left out.
	Lossless  bool
	Window    int // chunks that may be under way to a receiver; 0: no limit
	Chains    int // M, roots that multicast at the same time; at least 1
	Subgroups int // G, multicast groups a root's chunks are spread over; at least 1
	Eager     int // bytes of a whole buffer (P*N) up to which an operation is eager
	Arena     int // bytes of the arena; at least Eager
	// EagerChunks is how many chunks an epoch's eager operations may have in all.
	EagerChunks int
	Cutoff      time.Duration // smallest cutoff time alpha (III-C)
	Reorder     time.Duration // how long a gap may be a chunk overtaken by another, at first
	First       uint32        `json:",omitempty"` // number of the first operation; not 0 where numbers are to come round
}

// Check returns what is wrong with a configuration, and what is allowed, or nil.
func (c *Config) Check() error {
	switch {
	case c.Size > MaxRanks:
		return fmt.Errorf("multicast: %d ranks; the headers have room for %d", c.Size, MaxRanks)
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("multicast: rank %d of %d", c.Rank, c.Size)
	case c.Chunk < 1 || c.Chains < 1 || c.Subgroups < 1 || c.Subgroups > MaxSubgroups || c.Window < 0:
		return fmt.Errorf("multicast: chunk %d, chains %d, subgroups %d, window %d; chunk and chains must be at least 1, subgroups 1 to %d, the window not negative",
			c.Chunk, c.Chains, c.Subgroups, c.Window, MaxSubgroups)
	case !c.Lossless && c.Arena < c.Eager:
		return fmt.Errorf("multicast: arena of %d bytes for eager operations of up to %d", c.Arena, c.Eager)
	}
	return nil
}

// Op describes an operation as the caller posts it.
type Op struct {
	Collective wire.Collective
	Root       int // of a Broadcast
	Bytes      int // N, bytes of one shard; 0 is legal
	// Sync gives the operation a barrier and a final handshake whatever its
	// size: once it is done, no rank needs this one for anything before.
	Sync bool
}

func (o Op) String() string {
	switch o.Collective {
	case wire.Broadcast:
		return fmt.Sprintf("broadcast of %d bytes from rank %d", o.Bytes, o.Root)
	case wire.Barrier:
		return "barrier"
	}
	return fmt.Sprintf("%v of %d bytes", o.Collective, o.Bytes)
}

// Stats count what the protocol did since New.
type Stats struct {
	Done     uint64 // operations completed
	Lost     uint64 // chunks that were asked for and that multicast did not bring after all
	Repaired uint64 // chunks that arrived by repair
	Dropped  uint64 // chunks not placed: duplicates, stale, malformed
	Barriers uint64 // operations that had a barrier
	// Mismatched are those of the dropped chunks that belong to another operation than the one of
	// that number here. If all ranks have called the same, somebody else has sent them.
	Mismatched uint64
}

// Comm is one rank's side of a communicator.
type Comm struct {
	cfg    Config
	topo   topology.Graph
	chains topology.Chains
	window int // chunks that a chain of an Allgather may have under way, 0: no limit
	now    Time

	ring     [slots]op
	oldest   uint32 // first operation whose state is kept
	first    uint32 // first operation that is not done
	posted   uint32 // next operation to post
	begun    uint32 // none from here on has been begun by others
	opened   uint32 // last operation whose barrier has completed
	repairs  int    // chunks that the right neighbour wants and this rank has
	repair   uint32 // the first operation of which there are some is not before this one
	inFlight int
	pool     pool
	epoch    epoch

	control queue[Message]
	done    queue[Completion]
	err     error
	flows   [2]flow // of Allgathers, of Broadcasts
	shared  bool    // see Share
	pace    pace
	stats   Stats
}

// epoch tracks the eager operations since the last barrier.
type epoch struct {
	opener uint32 // the operation whose barrier opened it
	bytes  int    // of the arena used
	chunks int
	ops    int
}

// Message is a control message for another rank.
type Message struct {
	To int
	wire.Control
}

// Completion says that an operation is done: its buffers belong to the caller
// again. For an eager operation the driver copies the result out of the arena
// before it does anything else.
type Completion struct {
	Seq   uint32
	Err   error
	Arena uint32 // where the result lies in the arena, or NotEager
}

// New returns a communicator. It panics on a configuration that no fabric
// makes, such as a chunk of 0 bytes: user input is checked by internal/config.
func New(cfg Config) *Comm {
	if err := cfg.Check(); err != nil {
		panic(err)
	}
	m := min(cfg.Chains, cfg.Size)
	if cfg.Window > 0 {
		m = min(m, cfg.Window)
	}
	c := &Comm{cfg: cfg, topo: topology.Graph{Rank: cfg.Rank, Size: cfg.Size}, chains: topology.Chains{Size: cfg.Size, M: m}}
	c.window = cfg.Window / m
	c.pace = pace{least: cfg.Cutoff, alpha: cfg.Cutoff, reorder: cfg.Reorder, order: cfg.Reorder}
	// Nothing precedes the first operation, so it needs no barrier of its own
	// to open an epoch: joining was one.
	c.oldest, c.first, c.posted, c.begun = cfg.First, cfg.First, cfg.First, cfg.First
	c.opened, c.epoch.opener = cfg.First-1, cfg.First-1
	return c
}

// Post begins an operation and returns its number. It returns ErrBusy when Room
// is 0, the error that Fail was given after a failure, or an
// error that names a wrong argument.
func (c *Comm) Post(now Time, o Op) (uint32, error) {
	c.tick(now)
	switch {
	case c.err != nil:
		return 0, c.err
	case c.Room() == 0:
		return 0, ErrBusy
	case o.Collective < wire.Barrier || o.Collective > wire.Allgather:
		return 0, fmt.Errorf("multicast: unknown collective %d", o.Collective)
	case o.Root < 0 || o.Root >= c.cfg.Size:
		return 0, fmt.Errorf("root %d is not a rank; ranks are 0 to %d", o.Root, c.cfg.Size-1)
	case o.Bytes < 0:
		return 0, fmt.Errorf("size of %d bytes; it must be at least 0", o.Bytes)
	case o.Bytes/c.cfg.Chunk >= maxChunks/c.cfg.Size:
		return 0, fmt.Errorf("size of %d bytes; with %d ranks and chunks of %d bytes it must be below %d",
			o.Bytes, c.cfg.Size, c.cfg.Chunk, maxChunks/c.cfg.Size*c.cfg.Chunk)
	}
	sh := shapeOf(o, c.cfg.Size, c.cfg.Chunk)
	seq := c.posted
	p := &c.ring[seq%slots]
	c.posted++
	if before(c.begun, c.posted) {
		c.begun = c.posted
	}
	c.inFlight++
	p.post(c, seq, sh, c.plan(seq, &sh, o.Sync))
	if p.barrier {
		c.stats.Barriers++
	}
	c.advance()
	return seq, nil
}

// road is how an operation travels.
type road struct {
	eager   bool
	barrier bool
	arena   uint32
	opener  uint32 // barrier that must be complete before anything is sent
	// handshake says that the operation is done only when the right neighbour
	// has it too. An eager one needs that only if it is the last.
	handshake bool
}

// plan decides how an operation travels. It depends only on what was posted
// before, so all ranks decide alike.
func (c *Comm) plan(seq uint32, s *shape, sync bool) road {
	if c.cfg.Lossless || c.cfg.Size == 1 {
		return road{arena: NotEager}
	}
	e := &c.epoch
	r := road{arena: NotEager, eager: s.total() <= c.cfg.Eager && s.shards*s.chunks <= c.cfg.EagerChunks}
	// Arena places are cache-line aligned, which also keeps elements aligned.
	need := (s.total() + 63) &^ 63
	fits := e.ops < epochOps && e.bytes+need <= c.cfg.Arena && e.chunks+s.shards*s.chunks <= c.cfg.EagerChunks
	if sync || !r.eager || !fits {
		r.barrier = true
		*e = epoch{opener: seq}
	}
	if r.eager {
		r.arena = uint32(e.bytes) //nolint:gosec // at most cfg.Arena
		e.bytes += need
		e.chunks += s.shards * s.chunks
		e.ops++
	}
	r.opener = e.opener
	r.handshake = sync || !r.eager
	return r
}

// Fail ends every operation in flight, and all later ones, with err.
func (c *Comm) Fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.activeOps(func(p *op) bool {
		c.complete(p, err)
		return true
	})
	c.control.clear()
}

// Err returns what Fail was given, or nil.
func (c *Comm) Err() error { return c.err }

// Room returns how many operations may be posted now: the numbers of those in
// flight span at most MaxInFlight.
func (c *Comm) Room() int { return MaxInFlight - int(c.posted-c.first) }

// InFlight returns how many operations are posted and not done.
func (c *Comm) InFlight() int { return c.inFlight }

// Posted returns the number of the next operation.
func (c *Comm) Posted() uint32 { return c.posted }

// Stats returns the counters.
func (c *Comm) Stats() Stats { return c.stats }

// NextControl returns the control message to be sent next and whether there is
// one. It stays the next one until PopControl.
func (c *Comm) NextControl() (Message, bool) { return c.control.front() }

// PopControl removes the message that NextControl returned: it is on its way.
func (c *Comm) PopControl() { c.control.pop() }

// NextDone returns and removes the next completion.
func (c *Comm) NextDone() (Completion, bool) {
	d, ok := c.done.front()
	if ok {
		c.done.pop()
	}
	return d, ok
}

func (c *Comm) send(to int, m wire.Control) {
	if c.err == nil {
		c.control.push(Message{to, m})
	}
}

func (c *Comm) tick(now Time) { c.now = max(c.now, now) }

// disagree records that this rank and another (or two others) posted different operations.
func (c *Comm) disagree(seq uint32, a int, whatA string, b int, whatB string) {
	c.Fail(&MismatchError{Seq: seq, Ranks: [2]int{a, b}, What: [2]string{whatA, whatB}})
}

func describe(s *shape) string {
	return s.op().String()
}

// queue is a first-in first-out list that reuses its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) push(v T) { q.items = append(q.items, v) }

func (q *queue[T]) front() (v T, ok bool) {
	if q.head == len(q.items) {
		return v, false
	}
	return q.items[q.head], true
}

func (q *queue[T]) pop() {
	q.head++
	if q.head == len(q.items) {
		q.clear()
	}
}

func (q *queue[T]) clear() { q.items, q.head = q.items[:0], 0 }
