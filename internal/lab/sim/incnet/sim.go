package incnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
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

// sim is a run under way.
type sim struct {
	Scenario
	rng         *rand.Rand
	net         *network.Network
	timers      map[uint64]func()
	timed       uint64
	streamQueue int32          // of every host
	progress    innetwork.Time // when something was last taken
	session     int            // counts sessions; what belongs to an older one is stale
	nodes       []*aggregator
	ranks       []*rank
	places      []place    // of the nodes
	numbers     []int      // of the ranks at their nodes
	expected    [][][]byte // results by operation and owner
	records     [][]byte   // of the ranks that have left the session
	leaving     int        // ranks that have
	resumed     int        // ranks that go on directly after that
	failing     bool       // a rank has crashed: the others end when they are told
	dropped     int        // datagrams that Net.Drop has lost
	result      Result
	err         error
}

// A run hangs in which no operation completes for longer, in virtual time, or
// that takes more events: some ten thousand are usual.
const (
	patience  = 20 * time.Second
	maxEvents = 2_000_000
)

// Run runs the scenario to its end or to the first violation.
func (sc *Scenario) Run() Result {
	s := &sim{Scenario: *sc, rng: rand.New(rand.NewPCG(sc.Seed, 2)), timers: map[uint64]func(){}}
	s.result.Scenario = *sc
	if s.err = s.connect(); s.err == nil {
		s.run()
	}
	s.result.Err = s.err
	return s.result
}

func (s *sim) run() {
	for r := range s.Terms.Ranks {
		s.ranks = append(s.ranks, newRank(s, r))
	}
	s.records = make([][]byte, len(s.ranks))
	s.expect()
	s.open()
	for _, r := range s.ranks {
		s.after(upTo(s.rng, s.Skew), r.post)
	}
	for _, c := range s.NodeCrashes {
		s.after(c.At, func() { s.crashNode(c) })
	}
	if c := s.RankCrash; c != nil {
		s.after(c.At, func() { s.crashRank(c) })
	}
	for s.err == nil && !s.over() {
		if !s.net.Step() || s.net.Now()-s.progress > patience || s.net.Events() > maxEvents {
			s.err = errors.Join(s.err, s.hang())
		}
	}
	s.account()
	s.result.Time, s.result.Events, s.result.Hash = s.net.Now(), int(s.net.Events()), s.net.Hash()
	s.result.Lost = s.dropped
	for _, c := range s.net.Counters() {
		s.result.Lost += int(c.Lost)
	}
	for h := range s.hosts() {
		s.result.Overflow += int(s.net.Host(h).Overflow)
	}
	for _, r := range s.ranks {
		s.result.Resent += int(r.reduce.Stats().Resent)
	}
}

// hosts is how many there are: those of the ranks, then those of the nodes.
func (s *sim) hosts() int { return s.Terms.Ranks + len(s.Parents) }

// connect builds the network: all ends on one switch. Apart from the delay, its links take next to
// no time.
func (s *sim) connect() (err error) {
	links := 0 // at most, of a host
	s.places, s.numbers = s.plant()
	for n := range s.places {
		links = max(links, len(s.places[n].children)+1)
	}
	s.streamQueue = int32(links * s.Terms.Stripes)
	s.net, err = network.New(network.Config{
		Tree: fattree.Config{Hosts: s.hosts()}, Gbps: network.MaxGbps, Latency: s.Net.Delay / 2, MTU: 1 << 20,
		Workers: int(s.streamQueue) + 1, Cost: s.Net.Work, Depth: s.Net.Queue + 1, // with the one being taken
		Faults: network.Faults{Loss: s.Net.Loss, Duplicate: s.Net.Dup, Jitter: s.Net.Jitter},
	}, s.Seed)
	if err != nil {
		return err
	}
	for h := range s.hosts() {
		s.net.Attach(h, s)
	}
	return nil
}

// Receive implements network.Node for all hosts: what arrives knows where.
func (s *sim) Receive(p *network.Packet) { p.Body.(interface{ arrive() }).arrive() }

// Wake implements network.Node.
func (s *sim) Wake(tag uint64) {
	do := s.timers[tag]
	delete(s.timers, tag)
	do()
}

// after has something done in a while.
func (s *sim) after(d innetwork.Time, do func()) {
	s.timed++
	s.timers[s.timed] = do
	s.net.At(s.net.Now()+d, 0, s.timed)
}

// account adds what the nodes of a session have counted.
func (s *sim) account() {
	for _, n := range s.nodes {
		for _, st := range n.stages {
			c := st.Stats()
			s.result.Again += int(c.Again)
			s.result.Gaps += int(c.Gaps)
			s.result.Polls += int(c.Polls)
			s.result.Refused += int(c.Malformed)
		}
	}
}

// over reports whether every rank that lives has finished or has been told of a crash.
func (s *sim) over() bool {
	for _, r := range s.ranks {
		if !r.ended() && r.completed < len(s.Ops) {
			return false
		}
	}
	return true
}

func (s *sim) hang() error {
	for _, r := range s.ranks {
		if !r.ended() && r.completed < len(s.Ops) {
			return fmt.Errorf("rank %d hangs in operation %d of %d (posted %d) at %v, after %d events", r.number, r.completed, len(s.Ops), r.posted, s.net.Now(), s.net.Events())
		}
	}
	return errors.New("nothing is left to happen")
}

func (s *sim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}
