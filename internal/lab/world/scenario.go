package world

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Scenario is a group, what its ranks call, and what goes wrong. As JSON it says all that a run
// depends on, but for the order in which Go's scheduler runs goroutines that are ready at the same
// moment.
type Scenario struct {
	Seed    uint64
	Net     Config
	Timeout time.Duration // MCAST_TIMEOUT; MCAST_JOIN_TIMEOUT is a minute
	Chunk   int           // MCAST_CHUNK
	Chains  int           // MCAST_CHAINS
	Fabric  string        // MCAST_FABRIC; empty: udp
	Pause   time.Duration // that each rank makes before each call
	Calls   []Call
	Odds    []Odd `json:",omitempty"`
	Late    []Late
	Events  []Event
	Faults  []Fault

	Racks    int  // that hosts are in by turns, as MCAST_TOPOLOGY says; 0: nobody says
	Flat     bool // MCAST_NODES=off
	ShmSlots int  // MCAST_SHM_SLOTS; 0: the default, as for MCAST_SHM_CHUNK
	ShmChunk int
	Outputs  int // MCAST_OUTPUTS
	// Registered is how many ranks, the first ones, register the buffers of Allgathers and Broadcasts while an operation
	// uses them.
	Registered int `json:",omitempty"`

	Nodes         []Node
	Ways          [][]int       // switches in the order of MCAST_SWITCH: of each, which nodes ranks name by turns
	SwitchTimeout time.Duration // MCAST_SWITCH_TIMEOUT
	Fast          bool          // MCAST_SWITCH_MODE
	Slow          []Slow
	// Return is when all ranks reduce again, as often as it takes to go through a switch if one works
	// by then; 0: not at all.
	Return time.Duration
}

// Slow is a rank that computes longer than others before each call.
type Slow struct {
	Rank int
	By   time.Duration
}

// returning is how many Reduce-Scatters it takes at most until they go through a switch that all
// ranks have joined: it is announced that far ahead.
const returning = 2*collective.MaxInFlight + 8

// joinTimeout is MCAST_JOIN_TIMEOUT in all scenarios: longer than ranks are late.
const joinTimeout = time.Minute

// Kind is a collective.
type Kind uint8

// The collectives.
const (
	Allgather Kind = iota
	Broadcast
	Barrier
	ReduceScatter
	Reduce
	Allreduce
	kinds
	// Shift is a message from each rank to the next, and AllToAll one from each to each. They are not among kinds, since
	// draws of a kind stay as they were.
	Shift Kind = iota - 1
	AllToAll
	allKinds
)

// String returns the name.
func (k Kind) String() string {
	names := [...]string{
		"allgather", "broadcast", "barrier", "reduce-scatter", "reduce", "allreduce", "shift", "all-to-all",
	}
	return names[k%allKinds]
}

// Call is a collective that all ranks call.
type Call struct {
	Kind  Kind
	Bytes int         // of a shard, or of the whole where it is not cut
	Root  int         // a rank
	Type  reduce.Type // type of the elements that are summed: I8, F32 or BF16
	Async bool        // ranks go on, and wait for it later
	Keep  int         // steps for which an Allgather's result is held in shared memory; 0: it lies elsewhere
}

// Late says that a rank comes to a step later than others: 0 is to join, 1 the first call, and the
// last to close.
type Late struct {
	Rank, Step int
	By         time.Duration
}

// Deed is something that a rank does beside its calls, or that is done to it.
type Deed uint8

// The deeds.
const (
	Kill  Deed = iota + 1 // its process ends, as by SIGKILL
	Crash                 // its host loses power
	Stop                  // its process is stopped (SIGSTOP), and goes on For later
	Abort                 // its script ends by an exception
	Leave                 // it closes the group while others go on
	deeds
)

// Event is a deed and when: Kill, Crash and Stop come at a time, the others at a step. A node has a number after the
// numbers of the ranks. It may be killed, crash, stop and leave, all at a time, and starts again after For, if that is
// not 0.
type Event struct {
	Rank int
	Deed Deed
	At   time.Duration
	For  time.Duration
	Step int
}

// String describes the scenario in a line.
func (s *Scenario) String() string {
	text := fmt.Sprintf("%d ranks, MCAST_TIMEOUT=%v, %d calls, pause %v, late %v, events %v, faults %+v", s.Net.Ranks,
		s.Timeout, len(s.Calls), s.Pause, s.Late, s.Events, s.Faults)
	if s.Odds != nil {
		text += fmt.Sprintf(", odd calls %+v", s.Odds)
	}
	if s.Net.On != nil {
		text += fmt.Sprintf(", on hosts %v, racks %d, MCAST_FABRIC=%s, flat %v, MCAST_SHM_SLOTS=%d, MCAST_SHM_CHUNK=%d, "+
			"MCAST_OUTPUTS=%d", s.Net.On, s.Racks, s.Fabric, s.Flat, s.ShmSlots, s.ShmChunk, s.Outputs)
	}
	if s.Net.Reads > 0 {
		text += fmt.Sprintf(", reads of %d chunks, %d ranks registered, %v astray", s.Net.Reads, s.Registered, s.Net.Stray)
	}
	if len(s.Nodes) > 0 {
		text += fmt.Sprintf(", nodes %+v, ways %v, MCAST_SWITCH_TIMEOUT=%v, fast %v, slow %v, return %v", s.Nodes, s.Ways,
			s.SwitchTimeout, s.Fast, s.Slow, s.Return)
	}
	return text
}

// steps is how many there are: joining, the calls, those at Return, and closing.
func (s *Scenario) steps() int {
	if s.Return > 0 {
		return len(s.Calls) + 3
	}
	return len(s.Calls) + 2
}

// lateness is how much later a rank comes to a step.
func (s *Scenario) lateness(rank, step int) (d time.Duration) {
	for _, l := range s.Late {
		if l.Rank == rank && l.Step == step {
			d += l.By
		}
	}
	return d
}

// event returns the deed of a rank at a step, or nil.
func (s *Scenario) event(rank, step int) *Event {
	for i := range s.Events {
		if e := &s.Events[i]; e.Rank == rank && e.Step == step && (e.Deed == Abort || e.Deed == Leave) {
			return e
		}
	}
	return nil
}

// Fit mends what a change has left dangling and reports whether the scenario can be run.
func (s *Scenario) Fit() bool {
	if s.Net.Ranks < 2 || s.Net.MTU < 700 || s.Net.Queue < 16 || s.Timeout < 500*time.Millisecond || s.Pause < 0 ||
		s.Net.Delay < 0 {
		return false
	}
	s.Registered = min(s.Registered, s.Net.Ranks)
	if s.Net.Reads < 0 || s.Registered < 0 || s.Net.Stray < 0 || s.Net.Stray > 0.5 {
		return false
	}
	if !s.fitNodes() || !s.fitHosts() || s.ShmSlots != 0 && s.ShmSlots < 2 || s.ShmChunk != 0 && s.ShmChunk < 4<<10 ||
		s.Outputs < 0 || s.Outputs > 1<<30 {
		return false
	}
	rank := func(r int) bool { return r >= 0 && r < s.Net.Ranks }
	host := func(h int) bool { return h >= 0 && h < s.Net.Ranks+s.Net.Nodes }
	for i := range s.Calls {
		c := &s.Calls[i]
		c.Root = min(c.Root, s.Net.Ranks-1)
		if c.Type != reduce.I8 && c.Type != reduce.F32 && c.Type != reduce.BF16 {
			return false
		}
		if c.Kind >= allKinds || c.Bytes < 0 || c.Keep < 0 || !rank(c.Root) {
			return false
		}
	}
	for _, l := range s.Late {
		if !rank(l.Rank) || l.By < 0 || l.By > 15*time.Second {
			return false
		}
	}
	for _, l := range s.Slow {
		if !rank(l.Rank) || l.By < 0 || l.By > time.Second {
			return false
		}
	}
	for _, e := range s.Events {
		if s.node(e.Rank) && host(e.Rank) && e.At >= 0 && e.For >= 0 &&
			(e.Deed == Kill || e.Deed == Crash || e.Deed == Leave || e.Deed == Stop && e.For > 0) {
			continue
		}
		if !rank(e.Rank) || e.Deed < Kill || e.Deed >= deeds || e.At < 0 {
			return false
		}
		if e.Deed == Stop && e.For > s.Timeout && e.For < s.Timeout*3/2 {
			return false // whether it is dead is a matter of luck
		}
	}
	for _, f := range s.Faults {
		if f.From != Anybody && !host(f.From) || f.To != Anybody && !host(f.To) || f.At < 0 || f.For < 0 || f.Share < 0 ||
			f.Share > 1 {
			return false
		}
		if f.What != Drop && !host(f.From) || f.What < Drop || f.What > Congested || f.What == Drop && f.Flow == 0 ||
			f.What == Narrow && (!s.node(f.From) || f.Least < 100) {
			return false
		}
		if s.ends(&f) == maybe {
			return false
		}
	}
	if !s.fitOdds() {
		return false
	}
	return s.Return == 0 || s.Return > 0 && s.Return < time.Hour && len(s.Nodes) > 0
}

// slowness is how much longer than others a rank computes before each call.
func (s *Scenario) slowness(rank int) (d time.Duration) {
	for _, l := range s.Slow {
		if l.Rank == rank {
			d += l.By
		}
	}
	return d
}
