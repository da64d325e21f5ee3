package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Result is what a run came to.
type Result struct {
	Scenario Scenario
	Err      error  // the first violation, nil if there was none
	Hash     uint64 // hash of every event and its effects
	Time     multicast.Time
	Events   uint64
	Ops      int                 // completed, over all ranks
	Bytes    int64               // checked
	Chunks   int                 // multicast
	Overflow int                 // datagrams that found a receive queue full
	Restarts int                 // communicators after the first
	Control  [wire.Relay + 1]int // control messages sent, by kind
	Stats    multicast.Stats     // summed over the ranks
	// Spans has one entry an operation of the script's last run: from when the
	// first rank posted it to when the last one had it.
	Spans []Span
	Marks []Mark // if Scenario.Trace
}

// Span is a stretch of virtual time.
type Span struct{ From, To multicast.Time }

// Job is a run under way: the ranks of one communicator on a network.
type Job struct {
	*Scenario
	net      *network.Share
	clock    engine.Clock // of all ranks: one that each had would be one more line of memory to look at
	rng      *rand.Rand
	forger   *rand.Rand // of what strangers send
	ranks    []*rank
	progress multicast.Time // when a chunk was last placed, an operation completed, or a rank restarted
	events   uint64         // there had been by then
	posted   []int          // ranks that have posted an operation
	life     int            // communicators before this one
	whole    []uint64       // digest of an operation's whole buffer
	// untouched is the buffer of all operations of all ranks where digests stand for bytes: memory
	// that has addresses and nothing else, so that the engine's chunks have places.
	untouched []byte
	silence   multicast.Time // after which a run hangs
	peak      int            // packets in flight
	broken    bool           // a message was not delivered for too long
	result    Result
	err       error
}

// Run runs the scenario to its end or to the first violation.
func (sc *Scenario) Run() Result {
	net, err := network.New(sc.Net, sc.Seed)
	if err != nil {
		return Result{Scenario: *sc, Err: err}
	}
	j := sc.On(net.Share(0))
	for j.Step() {
	}
	return j.Finish()
}

// On puts the ranks of a scenario on a network that is there already, rank r at
// host r, and lets them begin. A scenario that cannot be run is a Job that has failed.
func (sc *Scenario) On(net *network.Share) *Job {
	j := &Job{
		Scenario: sc, net: net, clock: net.Now, rng: rand.New(rand.NewPCG(sc.Seed, 1)),
		forger: rand.New(rand.NewPCG(sc.Seed, 3)),
	}
	j.result.Scenario = *sc
	if j.err = sc.check(); j.err != nil {
		return j
	}
	j.whole, j.silence = make([]uint64, len(sc.Ops)), sc.patience()
	if sc.Digest {
		if j.untouched, j.err = reserve(sc.longest()); j.err != nil {
			return j
		}
	}
	ranks := make([]rank, sc.Core.Size) // side by side, as a multicast comes to them
	for r := range ranks {
		ranks[r] = rank{Job: j, rank: r}
		j.ranks = append(j.ranks, &ranks[r])
		net.Attach(r, j.ranks[r])
	}
	j.begin()
	for _, c := range sc.Relays {
		on := 0
		if c.On {
			on = 1
		}
		j.ranks[c.Rank].at(c.At, wakeRelay, on)
	}
	for _, c := range sc.Crashes {
		j.ranks[c.Rank].at(c.At, wakeCrash, 0)
		for r, n := range j.ranks {
			if r != c.Rank {
				n.at(c.At+upTo(j.rng, c.Detect), wakeDetect, c.Rank)
			}
		}
		if c.Restart {
			// All join the new communicator at one moment: to join is a barrier.
			j.ranks[(c.Rank+1)%sc.Core.Size].at(c.At+c.Detect+restartAfter, wakeRestart, c.Rank)
		}
	}
	return j
}

// reserve returns memory that has addresses and nothing else: any access to it crashes.
func reserve(bytes int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("sim: address space of %d bytes for the buffers: %w", bytes, err)
	}
	return b, nil
}

// longest returns the size of the largest receive buffer; at least 1.
func (sc *Scenario) longest() int {
	most := 1
	for i := range sc.Ops {
		o := &sc.Ops[i]
		if o.Collective == wire.Broadcast {
			most = max(most, o.Bytes)
		} else {
			most = max(most, o.Bytes*sc.Core.Size)
		}
	}
	return most
}

// restartAfter is how long after the last rank has heard of a crash all begin again.
const restartAfter = 5 * time.Millisecond

// begin makes a communicator of all ranks and lets them run the script.
func (j *Job) begin() {
	j.posted = make([]int, len(j.Ops))
	j.result.Spans = make([]Span, len(j.Ops))
	for _, n := range j.ranks {
		n.begin()
		n.post(upTo(j.rng, j.Skew))
	}
}

// restart brings a crashed rank back; all begin again with a new communicator.
func (j *Job) restart(crashed int) {
	j.life++
	j.result.Restarts++
	j.moved()
	for _, n := range j.ranks {
		n.account()
	}
	j.net.Restart(crashed)
	j.begin()
}

// number is the job that this life's datagrams carry.
func (j *Job) number() uint64 { return 0x51b + uint64(j.life) }

// Step lets the next event happen, and reports whether there was one and no
// violation.
func (j *Job) Step() bool {
	if j.err != nil || !j.net.Step() {
		return false
	}
	j.peak = max(j.peak, j.net.InFlight())
	if now := j.net.Now(); now-j.progress > j.silence {
		if j.over() {
			return false
		}
		j.fail("hangs: nothing has arrived since %v", j.progress)
	}
	if most := j.MaxEvents; most > 0 && j.net.Events()-j.events > most {
		j.fail("hangs: %d events since something arrived, at %v", most, j.progress)
	}
	return j.err == nil
}

// moved says that something has been achieved.
func (j *Job) moved() { j.progress, j.events = j.net.Now(), j.net.Events() }

// over reports whether no rank that lives waits for anything.
func (j *Job) over() bool {
	for _, n := range j.ranks {
		if !n.dead && n.failed == nil && (len(n.ops) < len(j.Ops) || n.open > 0) {
			return false
		}
	}
	return true
}

// Finish checks what must hold when nothing is left to happen.
func (j *Job) Finish() Result {
	j.atEnd()
	if j.untouched != nil {
		_ = unix.Munmap(j.untouched) // else it is address space
		j.untouched = nil
	}
	r := &j.result
	r.Err, r.Time, r.Events = j.err, j.net.Now(), j.net.Events()
	r.Hash = mix(j.net.Hash(), uint64(r.Bytes)<<20^uint64(r.Chunks))
	for _, v := range []uint64{r.Stats.Done, r.Stats.Lost, r.Stats.Repaired, r.Stats.Dropped} {
		r.Hash = mix(r.Hash, v)
	}
	for h := range j.ranks {
		r.Overflow += int(j.net.Host(h).Overflow)
	}
	return *r
}

// mix is a step of a hash.
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// fail records the first violation.
func (j *Job) fail(format string, args ...any) {
	if j.err == nil {
		j.err = fmt.Errorf("at %v: "+format, append([]any{j.net.Now()}, args...)...)
	}
}

// check returns an error if a scenario that did not come from Random is wrong.
func (sc *Scenario) check() error {
	if err := sc.Core.Check(); err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	switch p := sc.Core.Size; {
	case len(sc.Crashes) > 1:
		return fmt.Errorf("sim: %d crashes; a run has one at most", len(sc.Crashes))
	case len(sc.Ops) == 0 || sc.Depth < 1 || sc.Burst < 1:
		return fmt.Errorf("sim: %d operations, depth %d, burst %d; each must be at least 1", len(sc.Ops), sc.Depth, sc.Burst)
	case sc.Net.Tree.Hosts < p:
		return fmt.Errorf("sim: %d ranks on %d hosts; each rank needs one", p, sc.Net.Tree.Hosts)
	case sc.Digest && (sc.Core.Eager > 0 || sc.Core.Lossless):
		return errors.New("sim: a digest does not cover the arena of eager operations, nor a lossless fabric; set Eager to 0")
	case sc.Digest && sc.Forged > 0:
		return errors.New("sim: a digest does not show what strangers have overwritten; set Forged to 0")
	case !(sc.Forged >= 0 && sc.Forged <= 1):
		return fmt.Errorf("sim: Forged is %v, allowed are 0 to 1", sc.Forged)
	case sc.Net.GiveUp == 0 && slices.ContainsFunc(sc.Net.Faults.Dead, func(d network.Dead) bool { return d.Unicast }):
		return errors.New("sim: a path that is dead to messages needs Net.GiveUp, or they are sent for ever")
	case sc.Nap < 0 || sc.Connection < 0:
		return fmt.Errorf("sim: nap %v, connections of %d bytes; neither may be negative", sc.Nap, sc.Connection)
	case sc.Core.Lossless && sc.Slots < 1:
		return errors.New("sim: a lossless fabric needs Slots")
	}
	for _, c := range sc.Relays {
		if c.Rank < 0 || c.Rank >= sc.Core.Size || c.At < 0 {
			return fmt.Errorf("sim: rank %d cannot relay from %v on; ranks are 0 to %d", c.Rank, c.At, sc.Core.Size-1)
		}
	}
	for _, c := range sc.Crashes {
		if c.Rank < 0 || c.Rank >= sc.Core.Size {
			return fmt.Errorf("sim: rank %d cannot crash; ranks are 0 to %d", c.Rank, sc.Core.Size-1)
		}
		if c.At < 0 || c.Detect < 0 {
			return fmt.Errorf("sim: crash at %v, noticed within %v; neither may be negative", c.At, c.Detect)
		}
	}
	return nil
}

// Whole returns how many operations of the script's last run at least one rank completed.
func (r *Result) Whole() (n int) {
	for _, s := range r.Spans {
		if s.To > 0 {
			n++
		}
	}
	return n
}

// String tells what a run came to.
func (r *Result) String() string {
	s := fmt.Sprintf("%v\n  %d operations, %d events, %v, hash %016x, %+v, control %v, overflow %d, restarts %d",
		&r.Scenario, r.Ops, r.Events, r.Time, r.Hash, r.Stats, r.Control, r.Overflow, r.Restarts)
	if r.Err != nil {
		s += fmt.Sprintf("\n  FAILED: %v", r.Err)
	}
	return s
}
