// Package reducescatter is one rank's lane of Reduce-Scatters and Reduces. Each operation goes
// through the switch (internal/protocol/innetwork) or directly from rank to rank
// (internal/protocol/direct), and all ranks choose alike for every one of them:
//
//   - The first operations go through the switch if all ranks have joined it
//     before any is posted (Begin), else directly.
//   - When the switch is lost, all ranks stop using it (Stop), tell each other
//     what of their results they hold, and finish directly what somebody lacks
//     (Resume). No operation fails.
//   - When all ranks have joined again (Join), rank 0 announces the first
//     operation to go through the switch in the headers of its direct streams,
//     so far ahead that nobody can post it without having read that.
//
// Like its components, a Lane has no clock, socket, goroutine or lock.
package reducescatter

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// maxAge bounds how far the number from which on operations go through the switch lies behind
// those posted now. Numbers wrap around, and can be compared across half of their range.
const maxAge = 1 << 30

// Lane is one rank's state.
type Lane struct {
	rank, size int
	ops        [collective.MaxInFlight]op // by number
	posted     uint32
	oldest     uint32   // all before are done
	finished   []uint32 // done, and not reported yet
	laps       laps

	direct  *direct.Comm // nil until Open
	streams *Streams
	member  *innetwork.Member // nil while this rank has not joined the switch
	epoch   uint32            // under which it has
	news    direct.Announcement
	over    uint32 // this epoch and those before are past
	first   uint32 // number of the member's operation 0

	stopped bool
	need    map[uint32][][]collective.Range // of operations that others had posted before Stop and this rank had not
	// empty is a range of operations that others had posted before Stop: the ones without elements are done, unless in
	// need.
	empty span
	stats Stats
}

// op is an operation in flight.
type op struct {
	direct.Op
	flying   bool
	switched bool // the switch reduces it
	lap      uint32
}

// span is the operations from one up to another.
type span struct{ from, to uint32 }

func (s span) has(number uint32) bool {
	return !wire.Before(number, s.from) && wire.Before(number, s.to)
}

// Stats count operations.
type Stats struct {
	Switched uint64 // done through the switch
	Direct   uint64 // done directly
}

// New returns a lane that does not take operations yet: see Begin.
func New(rank, size int) *Lane {
	return &Lane{rank: rank, size: size, stopped: true, need: map[uint32][][]collective.Range{}}
}

// Open gives the lane the streams of the direct path. It is called once, before anything goes that way.
func (l *Lane) Open(s fabric.Streams) {
	l.direct = direct.New(l.rank, l.size)
	l.streams = NewStreams(l.rank, l.size, l.direct, s)
}

// Opened reports whether Open was called.
func (l *Lane) Opened() bool { return l.direct != nil }

// Begin lets operations be posted: through the switch by a connection if all ranks have
// joined it under this epoch, or directly if all ranks pass nil.
func (l *Lane) Begin(epoch uint32, c *SwitchConn) {
	l.stopped = false
	if c != nil {
		l.attach(c)
		l.epoch, l.news = epoch, direct.Announcement{From: l.posted, Epoch: epoch}
	} else {
		l.over = epoch
	}
}

func (l *Lane) attach(c *SwitchConn) { c.lane, l.member = l, c.member }

// Join says that this rank has joined the switch again, by a connection under an epoch that
// is greater than any before, and that all others have, or know it soon.
func (l *Lane) Join(c *SwitchConn) {
	epoch := c.cfg.Epoch
	l.attach(c)
	l.epoch = epoch
	if l.rank == 0 {
		// A rank that posts that operation has completed the one collective.MaxInFlight before it: the header of that one
		// tells it.
		next := l.posted
		if l.empty != (span{}) && wire.Before(next, l.empty.to) {
			next = l.empty.to // up to there nothing may need a header
		}
		l.news = direct.Announcement{From: next + collective.MaxInFlight, Epoch: epoch}
		l.direct.Announce(l.news)
	}
}

// Room returns how many operations may be posted now.
func (l *Lane) Room() int {
	if l.stopped {
		return 0
	}
	n := collective.MaxInFlight - int(l.posted-l.oldest)
	if a := l.announced(); a.Epoch != 0 && (l.member == nil || l.epoch != a.Epoch) {
		// What the switch is to do waits until this rank hears that all have joined.
		n = min(n, max(0, int(int32(a.From-l.posted))))
	}
	return n
}

// announced returns from where on operations go through the switch.
func (l *Lane) announced() direct.Announcement {
	if l.direct != nil && l.rank != 0 {
		// Headers on their way may tell of an epoch that is over, or of one that is in use.
		if a := l.direct.Announced(); a.Epoch > l.over && a.Epoch != l.news.Epoch {
			l.news = a
		}
	}
	return l.news
}

// Post begins an operation and returns its number. The caller has checked the
// arguments and that there is room.
func (l *Lane) Post(now innetwork.Time, o direct.Op) uint32 {
	number := l.posted
	l.posted++
	p := &l.ops[number%collective.MaxInFlight]
	*p = op{Op: o, flying: true, lap: l.laps.post(&o, l.size)}
	if !wire.Before(number, l.empty.to) {
		l.empty = span{} // lest numbers that have wrapped around fall into it
	}
	need, late := l.need[number]
	switch a := l.announced(); {
	case late:
		delete(l.need, number)
		l.direct.Post(o, number, need)
	case l.empty.has(number) && o.Bytes() == 0:
		l.finished = append(l.finished, number)
	case a.Epoch != 0 && !wire.Before(number, a.From):
		p.switched = true
		seq := l.member.Post(now, o.Op)
		l.first = number - seq
		if number-a.From > maxAge {
			l.news.From = number - maxAge
		}
	default:
		l.direct.Post(o, number, nil)
	}
	return number
}

// Work moves what can be moved directly, sending only if told to, and reports
// whether that was anything. Err says whether it can go on.
func (l *Lane) Work(send bool) bool { return l.streams != nil && l.streams.Work(send) }

// Oldest returns the number of the oldest operation in flight, and how far that has come.
func (l *Lane) Oldest() (number uint32, at collective.Progress) {
	number = l.oldest
	switch p := &l.ops[number%collective.MaxInFlight]; {
	case number == l.posted:
	case !p.switched && l.direct != nil:
		at = l.direct.Oldest()
	case p.switched && l.member != nil:
		at = l.member.Oldest()
	}
	return number, at
}

// Latest says of a direct operation, the oldest in flight or one that was just done, which rank was the last to begin
// it, and which rank's input was last waited for. Through a switch nobody knows.
func (l *Lane) Latest(number uint32) (begun, input int, ok bool) {
	if l.direct == nil || l.ops[number%collective.MaxInFlight].switched {
		return 0, 0, false
	}
	begun, input = l.direct.Latest()
	return begun, input, true
}

// Check looks for broken streams, for when nothing else can be done.
func (l *Lane) Check() {
	if l.streams != nil {
		l.streams.Check()
	}
}

// Err returns why the direct path cannot go on, or nil.
func (l *Lane) Err() error {
	if l.direct == nil {
		return nil
	}
	return l.direct.Err()
}

// buffers returns the operation that the member knows as seq.
func (l *Lane) buffers(seq uint32) *direct.Op { return &l.ops[(l.first+seq)%collective.MaxInFlight].Op }

// inSlots reports whether the operation that the member knows as seq is a part of a Reduce-Scatter that
// goes owner after owner.
func (l *Lane) inSlots(seq uint32) bool {
	p := &l.ops[(l.first+seq)%collective.MaxInFlight]
	_, one := p.To.Root()
	return one && !l.laps.together[p.lap%collective.MaxInFlight]
}

// Switched reports whether the switch is what the next operation goes through.
func (l *Lane) Switched() bool {
	a := l.announced()
	return a.Epoch != 0 && !wire.Before(l.posted, a.From)
}

// Called names the call of the oldest operation that the switch has, if that is a step of one.
func (l *Lane) Called() string {
	for number := l.oldest; number != l.posted; number++ {
		if p := &l.ops[number%collective.MaxInFlight]; p.switched {
			return p.Called()
		}
	}
	return ""
}

// Directly reports whether operations are in flight on the direct path.
func (l *Lane) Directly() bool { return l.direct != nil && l.direct.InFlight() > 0 }

// NextDone returns the number of an operation that is done: this rank holds its result, and nobody needs its input any
// more. Direct operations may be done before earlier ones that went through the switch, and the other way round.
func (l *Lane) NextDone() (number uint32, ok bool) {
	if n := len(l.finished); n > 0 {
		number = l.finished[n-1]
		l.finished = l.finished[:n-1]
		l.stats.Switched++
		return l.retire(number), true
	}
	if l.member != nil {
		if seq, ok := l.member.NextDone(); ok {
			l.stats.Switched++
			return l.retire(l.first + seq), true
		}
	}
	if l.direct != nil {
		if number, ok := l.direct.NextDone(); ok {
			l.stats.Direct++
			return l.retire(number), true
		}
	}
	return 0, false
}

func (l *Lane) retire(number uint32) uint32 {
	p := &l.ops[number%collective.MaxInFlight]
	l.laps.done(p.lap)
	*p = op{}
	for l.oldest != l.posted && !l.ops[l.oldest%collective.MaxInFlight].flying {
		l.oldest++
	}
	return number
}

// Stats returns the counters.
func (l *Lane) Stats() Stats { return l.stats }
