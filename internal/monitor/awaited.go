package monitor

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
)

// Awaited is what this rank has waited for from another one, in operations that are done: how long, and chunks that it
// asked for. Of the own rank Chunks is what sending took.
type Awaited struct {
	Rank      int           `json:"rank"`
	Barrier   time.Duration `json:"barrier_ns"`   // for its word that it has begun an Allgather or Broadcast
	Chunks    time.Duration `json:"chunks_ns"`    // for its shard; of a small one, which has no barrier, until it has begun as well
	Credit    time.Duration `json:"credit_ns"`    // with chunks to send, for room there, or at ranks behind it
	Handshake time.Duration `json:"handshake_ns"` // for its word that it has everything
	Begin     time.Duration `json:"begin_ns"`     // until it had begun a Reduce-Scatter or Reduce, directly
	Input     time.Duration `json:"input_ns"`     // for its input to one
	Asked     uint64        `json:"asked"`        // chunks of its shards that were asked for
	Repaired  uint64        `json:"repaired"`     // chunks of its shards that came by repair
}

// idle reports whether there is nothing to say.
func (a *Awaited) idle() bool { return *a == Awaited{Rank: a.Rank} }

// Sum is for how long it was waited for, all together.
func (a *Awaited) Sum() time.Duration {
	return a.Barrier + a.Chunks + a.Credit + a.Handshake + a.Begin + a.Input
}

// Awaited returns which ranks were waited for, and for what, since Join.
func (m *Monitor) Awaited() []Awaited {
	all := make([]Awaited, m.plan.Size)
	for _, l := range m.ops.Levels() {
		addAwaited(all, l)
	}
	some := all[:0]
	for r := range all {
		if all[r].Rank = r; !all[r].idle() {
			some = append(some, all[r])
		}
	}
	return some
}

// addAwaited adds what the lanes of a level have waited for, by rank of the group.
func addAwaited(all []Awaited, l *hierarchy.Level) {
	_, f := l.Gather.Stats()
	for place, rank := range l.Members.Ranks {
		a, c, r := &all[rank], l.Gather.Awaited(place), l.Reduce.Awaited(place)
		a.Barrier += time.Duration(c.Barrier)
		a.Chunks += time.Duration(c.Chunks)
		a.Credit += time.Duration(c.Credit)
		a.Handshake += time.Duration(c.Handshake)
		a.Begin += r.Begin
		a.Input += r.Input
		a.Asked += c.Asked
		if place < len(f.Repairs) {
			a.Repaired += f.Repairs[place]
		}
	}
}
