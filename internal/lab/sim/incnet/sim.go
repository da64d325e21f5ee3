package incnet

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/reduction"
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
	Sent      int // bytes of contributions that ranks have sent, without headers
	Unread    int // most contributions under way or unread of one member in one stripe
	Sessions  int
	Resent    uint64 // contributions of ranks
	innetwork.StageStats
}

// String describes the result in a line.
func (r *Result) String() string {
	s := fmt.Sprintf("%s: %d ops (%d direct), %d datagrams, %d lost, %d overflowed, %d resent, %d results again, "+
		"%d gaps, %d polls, %d sessions, %v", r.Scenario.String(), r.Ops, r.Direct, r.Datagrams, r.Lost, r.Overflow,
		r.Resent, r.Again, r.Gaps, r.Polls, r.Sessions, r.Time)
	if r.Err != nil {
		s += fmt.Sprintf("\n  FAILED: %v", r.Err)
	}
	return s
}

// sim is a run under way.
type sim struct {
	Scenario
	rng         *rand.Rand
	net         *network.Network
	timers      map[uint64]func()
	timed       uint64
	streamQueue int            // of every host
	progress    innetwork.Time // when something was last taken
	session     int            // counts sessions; what belongs to an older one is stale
	nodes       [][]*stage     // by node and stripe
	ranks       []*rank
	plan        *reduction.Plan
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
	for r := s.running(); s.err == nil && r != nil; r = s.running() {
		if !s.net.Step() || s.net.Now()-s.progress > patience || s.net.Events() > maxEvents {
			s.fail("rank %d hangs in operation %d of %d (posted %d) at %v, after %d events",
				r.number, r.completed, len(s.Ops), r.posted, s.net.Now(), s.net.Events())
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
		s.result.Resent += r.reduce.Stats().Resent
	}
}

// hosts is how many there are: those of the ranks, then those of the nodes.
func (s *sim) hosts() int { return s.Terms.Ranks + len(s.Parents) }

// connect builds the network: all ends on one switch. Apart from the delay, its links take next to
// no time.
func (s *sim) connect() (err error) {
	links := 0 // at most, of a host
	var leaf []int
	for _, n := range s.At {
		leaf = append(leaf, s.Terms.Ranks+n)
	}
	s.plan = reduction.NewPlan(leaf, func(host int) int {
		if up := s.Parents[host-s.Terms.Ranks]; up >= 0 {
			return s.Terms.Ranks + up
		}
		return -1
	})
	for _, at := range s.plan.At {
		links = max(links, len(at.Children)+1)
	}
	s.streamQueue = links * s.Terms.Stripes
	s.net, err = network.New(network.Config{
		Tree: fattree.Config{Hosts: s.hosts()}, Gbps: network.MaxGbps, Latency: s.Net.Delay / 2, MTU: 1 << 20,
		Workers: s.streamQueue + 1, Cost: s.Net.Work, Depth: s.Net.Queue + 1, // with the one being taken
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

// post sends a packet to a queue of a host. arrive is called when it is taken off there.
func (s *sim) post(from, to, queue, bytes int, reliable bool, arrive func()) {
	p := s.net.Packet()
	p.From, p.To, p.Group, p.Bytes = int32(from), int32(to), int32(queue), int32(bytes)
	p.Reliable, p.Body = reliable, arrive
	s.net.Send(p)
}

// Receive implements network.Node for all hosts.
func (s *sim) Receive(p *network.Packet) { p.Body.(func())() }

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

// wake has something done at a moment, unless its timer is set to another one before.
func (s *sim) wake(timer *innetwork.Time, at innetwork.Time, do func()) {
	if at == *timer {
		return
	}
	*timer = at
	s.after(max(0, at-s.net.Now()), func() {
		if *timer == at {
			*timer = 0
			do()
		}
	})
}

// account adds what the nodes of a session have counted.
func (s *sim) account() {
	for _, stages := range s.nodes {
		for _, st := range stages {
			s.result.Add(st.Stats())
		}
	}
}

// running returns a rank that lives, has not finished and was told of no crash, or nil.
func (s *sim) running() *rank {
	for _, r := range s.ranks {
		if !r.ended() && r.completed < len(s.Ops) {
			return r
		}
	}
	return nil
}

func (s *sim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}
