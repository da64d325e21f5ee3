// Package collective has the words that protocols share: how large a communicator may be and how much
// may be in flight, how ranks disagree (MismatchError), and, of all ways of a Reduce-Scatter, what is
// to be done (Op) and parts of a shard (Range).
package collective

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

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

// MismatchError says that two parties of an operation called different things.
type MismatchError struct {
	Party string // what the numbers are of: "rank", or "member" of a node
	About string // which operation; "": the calls say it
	Who   [2]int
	What  [2]string
	// Called says that About and What are of the calls of which the operation is a step, in terms of the group.
	Called bool
}

// Error names both, and what each of them called.
func (e *MismatchError) Error() string {
	about := ""
	if e.About != "" {
		about = " about " + e.About
	}
	return fmt.Sprintf("%ss disagree%s: %s %d called %s, %s %d %s",
		e.Party, about, e.Party, e.Who[0], e.What[0], e.Party, e.Who[1], e.What[1])
}
