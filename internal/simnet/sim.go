package simnet

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// Job is the communicator that the simulated datagrams carry.
const Job = 0x51b

// Result is what a run came to.
type Result struct {
	Scenario Scenario
	Err      error // the first violation, nil if there was none
	Hash     uint64
	Time     core.Time // virtual
	Events   int
	Ops      int                // completed, over all ranks
	Bytes    int                // checked
	Chunks   int                // multicast
	Overflow int                // datagrams that found a queue full
	Control  [wire.Done + 1]int // control messages sent, by kind
	Stats    core.Stats         // summed over the ranks
}

// Replay is the command that runs a result's seed again.
func (r *Result) Replay() string {
	return fmt.Sprintf("go run ./internal/simnet/soak -first %d -seeds 1 -v", r.Scenario.Seed)
}

// Run runs the random scenario of a seed.
func Run(seed uint64) Result {
	s := Random(seed)
	return s.Run()
}

// sim is a run under way.
type sim struct {
	Scenario
	rng      *rand.Rand
	now      core.Time
	progress core.Time // when a chunk was last placed
	order    uint64
	agenda   agenda
	nodes    []*node
	heard    []core.Time // arrival of the last control message, from*P+to
	posted   []int       // ranks that have posted an operation
	dead     map[int]bool
	result   Result
	err      error
}

// Run runs the scenario to its end or to the first violation.
func (sc *Scenario) Run() Result {
	s := &sim{
		Scenario: *sc, rng: rand.New(rand.NewPCG(sc.Seed, 1)), //nolint:gosec // repeatable on purpose
		heard: make([]core.Time, sc.Core.Size*sc.Core.Size), posted: make([]int, len(sc.Ops)), dead: map[int]bool{},
	}
	s.result.Scenario = *sc
	for r := range sc.Core.Size {
		n := newNode(s, r)
		s.nodes = append(s.nodes, n)
		s.schedule(upTo(s.rng, s.Skew), post, n, nil)
	}
	for _, p := range sc.Pauses {
		s.order++
		heap.Push(&s.agenda, &event{at: p.At, order: s.order, kind: pause, node: s.nodes[p.Rank], length: p.For})
	}
	for _, c := range sc.Crashes {
		s.schedule(c.At, crash, s.nodes[c.Rank], nil)
		for r, n := range s.nodes {
			if r != c.Rank {
				s.schedule(c.At+upTo(s.rng, c.Detect), detect, n, &packet{from: c.Rank})
			}
		}
	}
	s.loop()
	s.atEnd()
	s.result.Err, s.result.Time = s.err, s.now
	return s.result
}

// A run hangs that takes more events, or in which no chunk arrives for longer.
// The protocol asks for what is missing once a second at least.
const (
	maxEvents  = 2_000_000
	maxSilence = 3 * time.Second
)

func (s *sim) loop() {
	hash := fnv.New64a()
	var line [32]byte
	for len(s.agenda) > 0 && s.err == nil {
		e := heap.Pop(&s.agenda).(*event)
		s.now = e.at
		s.result.Events++
		if s.now-s.progress > maxSilence || s.result.Events > maxEvents {
			s.fail("hangs: %d events, nothing has arrived since %v", s.result.Events, s.progress)
			break
		}
		n := e.node
		if n.dead || n.gone {
			continue
		}
		if s.now < n.paused && e.kind != arrive && e.kind != crash && e.kind != pause {
			s.postpone(e, n.paused)
			continue
		}
		n.happen(e)
		n.check()
		putUint(line[0:], uint64(e.at))                      //nolint:gosec // not negative
		putUint(line[8:], uint64(e.kind)<<32|uint64(n.rank)) //nolint:gosec // small
		st := n.comm.Stats()
		putUint(line[16:], st.Done<<48^st.Lost<<32^st.Repaired<<16^st.Dropped)
		putUint(line[24:], uint64(s.result.Bytes)<<20^uint64(s.result.Chunks)) //nolint:gosec // not negative
		_, _ = hash.Write(line[:])
	}
	s.result.Hash = hash.Sum64()
}

func putUint(b []byte, v uint64) {
	for i := range 8 {
		b[i] = byte(v >> (8 * i))
	}
}

// fail records the first violation.
func (s *sim) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("at %v: "+format, append([]any{s.now}, args...)...)
	}
}

// multicast sends a datagram to all but its root.
func (s *sim) multicast(p *packet) {
	s.result.Chunks++
	for _, n := range s.nodes {
		if n.rank == p.from || s.rng.Float64() < s.Net.Loss {
			continue
		}
		if s.Core.Lossless {
			// It is published at once; the event is the bell.
			n.held[p.from] = append(n.held[p.from], p)
		}
		s.schedule(s.Net.Delay+upTo(s.rng, s.Net.Jitter), arrive, n, p)
		if s.rng.Float64() < s.Net.Dup {
			s.schedule(s.Net.Delay+upTo(s.rng, 2*s.Net.Jitter), arrive, n, p)
		}
	}
}

// control sends a message on the reliable path.
func (s *sim) control(to int, p *packet) {
	s.result.Control[p.message.Kind]++
	last := &s.heard[p.from*s.Core.Size+to]
	at := max(*last, s.now+s.Net.ControlDelay+upTo(s.rng, s.Net.ControlJitter))
	*last = at
	s.schedule(at-s.now, control, s.nodes[to], p)
}

// Add adds the counts of another result.
func (r *Result) Add(o *Result) {
	r.Events += o.Events
	r.Ops += o.Ops
	r.Bytes += o.Bytes
	r.Chunks += o.Chunks
	r.Overflow += o.Overflow
	for k := range r.Control {
		r.Control[k] += o.Control[k]
	}
	r.Stats.Done += o.Stats.Done
	r.Stats.Lost += o.Stats.Lost
	r.Stats.Repaired += o.Stats.Repaired
	r.Stats.Dropped += o.Stats.Dropped
	r.Stats.Barriers += o.Stats.Barriers
}

// String tells what a run came to, and how to replay it when it failed.
func (r *Result) String() string {
	s := fmt.Sprintf("%v\n  %d operations, %d events, %v, hash %016x, %+v, control %v, overflow %d",
		&r.Scenario, r.Ops, r.Events, r.Time, r.Hash, r.Stats, r.Control, r.Overflow)
	if r.Err != nil {
		s += fmt.Sprintf("\n  FAILED: %v\n  replay: %s", r.Err, r.Replay())
	}
	return s
}
