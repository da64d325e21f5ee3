package incnet

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Result is what a run came to.
type Result struct {
	Scenario  Scenario
	Err       error // the first violation, nil if there was none
	Hash      uint64
	Time      innetwork.Time // virtual
	Events    int
	Ops       int // completed, over all ranks
	Direct    int // of them finished without the node, after a crash
	Bytes     int // checked
	Datagrams int
	Lost      int // by the network
	Overflow  int // found a queue full
	Resent    int // contributions of ranks
	Again     int // results that nodes sent again
	Gaps      int // that nodes reported
	Polls     int // that nodes answered
	Refused   int // datagrams that nodes took for no member's
	Sent      int // bytes of contributions that ranks have sent, without headers
	Unread    int // most contributions under way or unread of one member in one stripe
	Sessions  int
}

// String describes the result in a line.
func (r *Result) String() string {
	s := fmt.Sprintf("%s: %d ops (%d direct), %d datagrams, %d lost, %d overflowed, %d resent, %d results again, %d gaps, %d polls, %d sessions, %v",
		r.Scenario.String(), r.Ops, r.Direct, r.Datagrams, r.Lost, r.Overflow, r.Resent, r.Again, r.Gaps, r.Polls, r.Sessions, r.Time)
	if r.Err != nil {
		s += fmt.Sprintf("\n  FAILED: %v", r.Err)
	}
	return s
}

// Add adds another result's counts.
func (r *Result) Add(o *Result) {
	r.Events += o.Events
	r.Ops += o.Ops
	r.Direct += o.Direct
	r.Bytes += o.Bytes
	r.Datagrams += o.Datagrams
	r.Lost += o.Lost
	r.Overflow += o.Overflow
	r.Resent += o.Resent
	r.Again += o.Again
	r.Gaps += o.Gaps
	r.Polls += o.Polls
	r.Refused += o.Refused
	r.Sent += o.Sent
	r.Unread = max(r.Unread, o.Unread)
	r.Sessions += o.Sessions
}

// Run runs the random scenario of a seed.
func Run(seed uint64) Result {
	s := Random(seed)
	return s.Run()
}

// event happens at a moment; those of one moment in the order of scheduling.
type event struct {
	at    innetwork.Time
	order int
	do    func()
}

type agenda []event

// Len is for container/heap.
func (a agenda) Len() int { return len(a) }

// Less is for container/heap.
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}

// Swap is for container/heap.
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push is for container/heap.
func (a *agenda) Push(e any) { *a = append(*a, e.(event)) }

// Pop is for container/heap.
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}

// sim is a run under way.
type sim struct {
	Scenario
	rng      *rand.Rand
	now      innetwork.Time
	order    int
	agenda   agenda
	progress innetwork.Time // when a result was last taken
	session  int            // counts sessions; what belongs to an older one is stale
	nodes    []*node
	ranks    []*rank
	expected [][][]byte // results by operation and owner
	stopped  int        // ranks that have left the session
	restart  int        // operations before this one do not go through the present session
	settled  int        // operations before this one are finished directly, or were never to be
	failing  bool       // a rank has crashed: the others end when they learn of it
	result   Result
	err      error
}

// A run hangs in which no operation completes for longer, in virtual time, or
// that takes more events: some ten thousand are usual.
const (
	patience  = 20 * time.Second
	maxEvents = 2_000_000
)

// Run runs the scenario to its end or to the first violation.
func (sc *Scenario) Run() Result {
	s := &sim{Scenario: *sc, rng: rand.New(rand.NewPCG(sc.Seed, 2))} //nolint:gosec // repeatable on purpose
	s.result.Scenario = *sc
	for r := range sc.Terms.Ranks {
		s.ranks = append(s.ranks, newRank(s, r))
	}
	s.expect()
	s.open()
	for _, r := range s.ranks {
		s.after(upTo(s.rng, s.Skew), r.post)
	}
	for _, c := range sc.NodeCrashes {
		s.after(c.At, func() { s.crashNode(c) })
	}
	if c := sc.RankCrash; c != nil {
		s.after(c.At, func() { s.crashRank(c) })
	}
	hash := sc.Seed
	for len(s.agenda) > 0 && s.err == nil && !s.over() {
		e := heap.Pop(&s.agenda).(event)
		s.now = e.at
		s.result.Events++
		hash = (hash ^ uint64(e.at) ^ uint64(e.order)<<40) * 0x9e3779b97f4a7c15 //nolint:gosec // a digest
		e.do()
		if s.err == nil && (s.now-s.progress > patience || s.result.Events > maxEvents) {
			s.err = s.hang()
		}
	}
	if s.err == nil && !s.over() {
		s.err = s.hang()
	}
	if s.err == nil {
		s.account()
	}
	s.result.Err, s.result.Time, s.result.Hash = s.err, s.now, hash
	return s.result
}

// account adds what the members and nodes of a session have counted.
func (s *sim) account() {
	for _, r := range s.ranks {
		resent, _ := r.member.Resent()
		s.result.Resent += int(resent) //nolint:gosec // a count
	}
	for _, n := range s.nodes {
		for _, st := range n.stages {
			c := st.Stats()
			s.result.Again += int(c.Again)       //nolint:gosec // a count
			s.result.Gaps += int(c.Gaps)         //nolint:gosec // a count
			s.result.Polls += int(c.Polls)       //nolint:gosec // a count
			s.result.Refused += int(c.Malformed) //nolint:gosec // a count
		}
	}
}

func (s *sim) after(d innetwork.Time, do func()) {
	s.order++
	heap.Push(&s.agenda, event{s.now + d, s.order, do})
}

// over reports whether every rank that lives has finished or has been told of a crash.
func (s *sim) over() bool {
	for _, r := range s.ranks {
		if !r.crashed && !r.told && r.completed < len(s.Ops) {
			return false
		}
	}
	return true
}

func (s *sim) hang() error {
	for _, r := range s.ranks {
		if !r.crashed && !r.told && r.completed < len(s.Ops) {
			return fmt.Errorf("rank %d hangs in operation %d of %d (posted %d) at %v, after %d events", r.rank, r.completed, len(s.Ops), r.posted, s.now, s.result.Events)
		}
	}
	return nil
}

func (s *sim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// packet is a datagram under way.
type packet struct {
	head    wire.Slot
	payload []byte // of data
	credit  wire.SlotCredit
	status  wire.SlotStatus
	kept    wire.SlotKept
}

// contributes reports whether it takes of what a member may have unread.
func (p *packet) contributes() bool {
	return p.head.Kind == wire.Contribution || p.head.Kind == wire.Kept
}

// wired returns what arrives of a message: through the encoder, as in life.
func wired(h wire.Slot, payload []byte, c *wire.SlotCredit, st *wire.SlotStatus) *packet {
	var b [wire.SlotSize]byte
	p := &packet{}
	h.Put(b[:])
	err := p.head.Get(b[:])
	switch h.Kind {
	case wire.Allowance:
		body := make([]byte, wire.SlotBodySize+len(c.Missing.Bits))
		err = errors.Join(err, p.credit.Get(body[:c.Put(body)]))
	case wire.Status:
		body := make([]byte, wire.SlotBodySize+len(st.Held))
		err = errors.Join(err, p.status.Get(body[:st.Put(body)]))
	case wire.Kept:
		err = errors.Join(err, p.kept.Get(payload))
	default:
		p.payload = append([]byte(nil), payload...)
	}
	if err != nil {
		panic(err)
	}
	return p
}

// link is a receiver's queue for what one sender sends to it. What arrives goes to whoever is
// there by then, as at an address that is used again: the job's number tells sessions apart.
type link struct {
	s      *sim
	queue  []*packet
	busy   bool
	unread int // contributions that were sent and not taken off the queue
	handle func(p *packet)
}

// send puts a packet on its way.
func (l *link) send(p *packet) {
	s := l.s
	s.result.Datagrams++
	if p.contributes() {
		l.unread++
		s.result.Unread = max(s.result.Unread, l.unread)
	}
	copies := 1
	if s.rng.Float64() < s.Net.Loss || s.Net.Drop != nil && s.Net.Drop(&p.head, max(1, int(p.kept.Slots))) {
		s.result.Lost++
		copies = 0
	}
	if s.rng.Float64() < s.Net.Dup {
		copies++
	}
	if s.Net.Forge > 0 && s.rng.Float64() < s.Net.Forge {
		q := s.forge(p)
		s.after(s.Net.Delay+upTo(s.rng, s.Net.Jitter), func() { l.handle(q) })
	}
	for range copies {
		s.after(s.Net.Delay+upTo(s.rng, s.Net.Jitter), func() { l.arrive(p) })
	}
}

func (l *link) arrive(p *packet) {
	if len(l.queue) >= l.s.Net.Queue {
		l.s.result.Overflow++
		return
	}
	l.queue = append(l.queue, p)
	if !l.busy {
		l.busy = true
		l.s.after(l.s.Net.Work, l.work)
	}
}

func (l *link) work() {
	p := l.queue[0]
	l.queue = l.queue[1:]
	if p.contributes() {
		l.unread--
	}
	if l.busy = len(l.queue) > 0; l.busy {
		l.s.after(l.s.Net.Work, l.work)
	}
	l.handle(p)
	if l.s.Net.Late > 0 && l.s.rng.Float64() < l.s.Net.Late {
		l.s.after(upTo(l.s.rng, lateness), func() { l.handle(p) })
	}
}
