// Package multicast is the multicast protocol of Khalilov et al., SC24, sections III and IV, as a pure state machine:
// reliable Broadcast over unreliable multicast, and Allgather as a composition of Broadcasts. It has no clock, socket,
// goroutine, lock or random source; it does not even touch the bytes, only their addresses. Its driver (internal/engine
// over a fabric, internal/lab/sim in virtual time) tells it what happened and asks what to do:
//
//	what happened             what to do next
//	Post                      NextRun, Sent       chunks to multicast
//	Place, Received           NextControl         messages on the reliable path
//	Control                   NextRepair, Repaired chunks the right neighbour lacks, or Offered for it to read
//	ReadEnded                 NextRead, Reading    chunks to read from the left neighbour's memory
//	Relay                     NextRelay, Relayed   chunks for it where multicast does not reach all
//	Expire (see Deadline)     NextDone            completions
//	Fail
//
// An operation is large, small or serial, which is its mode. A large one is announced by a dissemination
// barrier, so that every rank has its receive buffer ready (RNR synchronisation, III-C); its roots
// take turns (the sequencer, IV-A) and send as far as the slowest receiver's credit allows; chunks
// land in the user's buffer; and a rank keeps its buffer until its right neighbour is complete
// (final handshake). A small one is eager: every rank holds an arena of receive memory ready for
// small operations at all times, so they are sent at once. Barriers between them bound how far
// ranks drift apart: they open an epoch, and all that was sent eagerly before has been received by
// everybody when one completes (docs/decisions/0002). A serial one is a large Broadcast: credit says that
// every rank has its buffer ready, so it needs no barrier, and any number of them are sent at once
// (docs/decisions/0035).
//
// An operation is an op. It consists of components, each a type in a file of its name: calls, barrier, sender,
// receiver, credit, loss, fetch, repairs, timer, handshake. They read the operation's layout (shape and mode), know
// each other only by values that they are handed, and put messages into the outbox. Comm has the state that spans
// operations (table, epoch, backlog, pace, flows, pool), and the events. Each event ends in advance.
//
// Files call downwards only:
//
//	events      control post ready receive send     expire repair pull waiting
//	order       advance
//	together    compare recover series relay hearing
//	Comm, op    comm op memory
//	components  calls barrier sender receiver credit loss fetch repairs pulls handshake timer link
//	what all read or use  shape mode, queue, pace, flow, call config
package multicast

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Limits of the protocol.
const (
	// MaxSubgroups is what the headers have room for.
	MaxSubgroups = 1 << 8
	// NotEager in a Data header's Arena marks a chunk for the user's buffer.
	NotEager = ^uint32(0)

	epochOps   = 64      // eager operations of an epoch
	maxKnown   = 256     // operations that a rank can know of at once; a power of two
	maxChunks  = 1 << 31 // of a whole buffer
	arenaAlign = 64      // bytes between places in the arena
)

// Time is a moment.
type Time = collective.Time

// ErrBusy is returned by Post when Room is 0.
var ErrBusy = fmt.Errorf("multicast: %d operations are in flight already; wait for one", collective.MaxInFlight)

// Stats count what the protocol did since New.
type Stats struct {
	Done     uint64 // operations completed
	Lost     uint64 // chunks that were asked for and that multicast did not bring after all
	Repaired uint64 // chunks that arrived by repair
	Relayed  uint64 // chunks that arrived by relay
	Dropped  uint64 // chunks not placed: duplicates, stale, malformed
	Barriers uint64 // operations that had a barrier
	// Mismatched are those of the dropped chunks that belong to another operation than the one of
	// that number here. If all ranks have called the same, somebody else has sent them.
	Mismatched uint64
	Unheard    uint64 // roots that this rank does not hear by multicast now
	Relaying   uint64 // 1 if what this rank sends is relayed, now
}

// Message is a control message for another rank.
type Message struct {
	To int
	wire.Control
}

// Completion says that an operation is done: its buffers belong to the caller again. For an eager
// operation the driver copies the result out of the arena before it does anything else.
type Completion struct {
	Seq    uint32
	Err    error
	Arena  uint32 // where the result lies in the arena, or NotEager
	Second bool   // it is the second arena
}

// Comm is one rank's side of a communicator.
type Comm struct {
	// What every chunk and every look for something to do reads stands together.
	cfg     Config
	err     error // that Fail was given; all operations have ended
	now     Time
	pace    pace
	stats   Stats
	epoch   epoch
	backlog backlog
	relayed relayed
	out     outbox
	done    queue[Completion]
	series  []series // by root; nil: there has been none
	ops     table
	offers  int // of the left neighbour, of all operations: nothing is read of them yet

	topo       topology.Graph
	pool       pool
	inFlight   int  // operations that are active
	shared     bool // see Share
	unsent     int  // see Unsent
	pushes     bool // the right neighbour cannot read offered chunks
	unreadable bool // this rank cannot read offered chunks
	hearing    hearing
	flows      flows
	laps       laps
	lastRoot   int       // of the serial operation posted last
	latest     uint32    // the serial operation of the last chunk
	waitedFor  []Awaited // by rank
	freed      Time      // when an operation was last received or done: those behind it have waited for that until then
	past       past      // nothing without the build tag invariants
}

// New returns a communicator. It panics on a configuration that no fabric makes, such as a chunk of
// 0 bytes: user input is checked by internal/config.
func New(cfg Config) *Comm {
	if err := cfg.Check(); err != nil {
		panic(err)
	}
	c := &Comm{
		cfg: cfg, topo: topology.Graph{Rank: cfg.Rank, Size: cfg.Size, Order: topology.NewOrder(cfg.Ring)},
		pace: newPace(cfg.Cutoff, cfg.Reorder), flows: newFlows(), hearing: newHearing(cfg.Size, cfg.Deaf),
		waitedFor: make([]Awaited, cfg.Size),
	}
	// Nothing precedes the first operation, so it needs no barrier of its own to open an epoch:
	// joining was one.
	c.ops.oldest, c.ops.first, c.ops.posted, c.ops.begun = cfg.First, cfg.First, cfg.First, cfg.First
	c.epoch.opener, c.epoch.opened = cfg.First-1, cfg.First-1
	return c
}

// Fail ends every operation in flight, and all later ones, with err.
func (c *Comm) Fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for p := c.ops.front(); p != nil; p = c.ops.after(p) {
		c.complete(p, err)
	}
	c.out.close()
	c.verify()
}

// Err returns what Fail was given, or nil.
func (c *Comm) Err() error { return c.err }

// Room returns how many operations may be posted now: the numbers of those in flight span at most
// collective.MaxInFlight.
func (c *Comm) Room() int { return collective.MaxInFlight - int(c.ops.posted-c.ops.first) }

// InFlight returns how many operations are posted and not done.
func (c *Comm) InFlight() int { return c.inFlight }

// Posted returns the number of the next operation.
func (c *Comm) Posted() uint32 { return c.ops.posted }

// Stats returns the counters.
func (c *Comm) Stats() Stats {
	s := c.stats
	s.Unheard = uint64(c.hearing.deaf)
	if c.relays() {
		s.Relaying = 1
	}
	return s
}

// Share says whether a Reduce-Scatter of this rank shares its links with multicast. The Reduce-Scatter keeps a window
// of its own under way, and a root that keeps less under way gets less than its share.
func (c *Comm) Share(shared bool) { c.shared = shared }

// Silent reports whether there is neither a control message nor a repair nor a relay to send, nor something to read.
func (c *Comm) Silent() bool {
	return c.out.len() == 0 && c.backlog.chunks == 0 && c.relayed.len() == 0 && c.offers == 0
}

// NextControl returns the control message to be sent next and whether there is one. It stays the
// next one until PopControl.
func (c *Comm) NextControl() (Message, bool) { return c.out.front() }

// PopControl removes the message that NextControl returned: it is on its way.
func (c *Comm) PopControl() { c.out.pop() }

// AnyDone reports whether NextDone has one.
func (c *Comm) AnyDone() bool { return c.done.len() > 0 }

// NextDone returns and removes the next completion.
func (c *Comm) NextDone() (Completion, bool) {
	d, ok := c.done.front()
	if ok {
		c.done.pop()
	}
	return d, ok
}

// tick takes the time of an event.
func (c *Comm) tick(now Time) { c.now = max(c.now, now) }

// complete hands an operation back to the caller.
func (c *Comm) complete(p *op, err error) {
	c.done.push(Completion{Seq: p.seq, Err: err, Arena: p.mode.arena, Second: p.mode.second})
	p.state = retained
	p.timer.stop()
	c.freed = c.now
	c.inFlight--
	if err == nil {
		c.stats.Done++
	}
}

// disagree ends the communicator: this rank and another posted different operations, or steps of different calls.
func (c *Comm) disagree(p *op, mine Op, from int, theirs Op) {
	if mine.Call.Equal(&theirs.Call) {
		c.mismatch(p.seq, from, mine.text(), theirs.text(), false)
		return
	}
	a, b := opOfCall(&mine.Call).String(), opOfCall(&theirs.Call).String() // of a root that is a rank of the group
	if n, m := mine.Call.Number, theirs.Call.Number; n != m {
		a, b = fmt.Sprintf("%s as operation %d", a, n), fmt.Sprintf("%s as operation %d", b, m)
	}
	c.mismatch(mine.Call.Number, from, collective.Text{Words: a}, collective.Text{Words: b}, true)
}

// disagreeHow ends the communicator: this rank and another posted the same operation, to be done differently.
func (c *Comm) disagreeHow(p *op, from int, mine, theirs string) {
	o := p.called()
	c.mismatch(p.seq, from, collective.Textf("%v %s", o.text(), mine), collective.Textf("%v %s", o.text(), theirs), false)
}

func (c *Comm) mismatch(number uint32, from int, mine, theirs collective.Text, called bool) {
	c.Fail(&collective.MismatchError{
		About: fmt.Sprintf("operation %d", number), Who: [2]int{c.cfg.Rank, from}, What: [2]collective.Text{mine, theirs}, Called: called,
	})
}
