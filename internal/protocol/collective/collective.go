// Package collective has the words that protocols share: how large a communicator may be and how much may be in flight,
// how ranks disagree (MismatchError), words about members (Text), and, for all ways of a Reduce-Scatter, the task (Op)
// and parts of a shard (Range).
package collective

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Time is a moment of a protocol: how long after some fixed one. It must not go backwards.
type Time = time.Duration

const (
	// MaxRanks bounds a communicator: members of a job are numbered in 16 bits.
	MaxRanks = 1 << 15
	// MaxInFlight is how many operations of a rank may be posted and not done.
	MaxInFlight = 32
)

// Op is a Reduce-Scatter of Count elements a shard, or a Reduce of Count elements to one rank.
type Op struct {
	To        wire.Target
	Count     int
	Type      reduce.Type
	Reduction reduce.Op
	Factor    float64   // of reduce.PremulSum
	Call      wire.Call // what was called, if the operation is a step of that
}

// Bytes returns the length of a shard.
func (o *Op) Bytes() int { return o.Count * o.Type.Size() }

// Range is a part of a shard: bytes From to To.
type Range struct{ From, To int }

// MismatchError says that two members called different things.
type MismatchError struct {
	About string // which operation; "": the calls say it
	Who   [2]int // by place
	What  [2]Text
	// Called says that the operation is a step of a call: About and What describe the calls, in terms of the group.
	Called bool
}

// Error names both, and what each of them called.
func (e *MismatchError) Error() string {
	d := e.In(func(place int) int { return place })
	return d.Words(e.About)
}

// In returns who disagrees about what, with the ranks of the members.
func (e *MismatchError) In(rank func(place int) int) Disagreement {
	return Disagreement{
		Ranks: [2]int{rank(e.Who[0]), rank(e.Who[1])},
		What:  [2]string{e.What[0].In(rank), e.What[1].In(rank)},
	}
}

// Disagreement is which ranks of a group called or have different things.
type Disagreement struct {
	Ranks [2]int    `json:"ranks"` // -1: nobody knows which
	What  [2]string `json:"what"`  // each of them called or has
}

// Words says so, and about which operation, if that is not empty.
func (d *Disagreement) Words(about string) string {
	if about != "" {
		about = " about " + about
	}
	return fmt.Sprintf("ranks disagree%s: rank %d called %s, rank %d %s", about, d.Ranks[0], d.What[0], d.Ranks[1],
		d.What[1])
}
