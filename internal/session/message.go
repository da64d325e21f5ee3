package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

// Version is the version of the frames, and of the meaning of datagrams: from 2 on owners keep contributions
// (wire.Kept), from 3 on members probe the path (wire.Echo), from 4 on datagrams are of wire.Version 4, from 5 on
// stripes have tracks (innetwork.Terms.Tracks), in 6 datagrams are of wire.Version 7, from 7 on secrets are proven by
// TLS, and tags cover all of a slot's number, from 8 on members say which ranks of the group they are, and a mismatch
// says who disagrees about what, from 9 on there are bitwise reductions.
const Version = 9

// greeting opens a connection: the switch speaks first, in clear.
type greeting struct {
	Magic   string `json:"magic"`
	Version int    `json:"version"`
	Sealed  bool   `json:"sealed"` // only members that prove a secret are admitted; the proof follows
}

const magic = "mcast switch"

// Request is what a member asks for.
type Request struct {
	Version int `json:"version"`
	// Job is the communicator, the same on all ranks.
	Job uint64 `json:"job,string"`
	// Epoch counts the attempts of a communicator to join; a newer one ends older ones.
	Epoch uint32 `json:"epoch"`
	// Ranks is the number of ranks of the communicator, from 1 to collective.MaxRanks.
	Ranks int `json:"ranks"`
	// Rank is who asks; of no meaning if Child is set.
	Rank int `json:"rank"`
	// InGroup is this rank's number in the whole group, which texts name, if it differs from Rank.
	InGroup *int `json:"in_group,omitempty"`
	// Child says that a switch asks on behalf of ranks that it will name.
	Child bool `json:"child,omitempty"`
	// Reproducible asks for sums in members' order rather than as they arrive.
	Reproducible bool `json:"reproducible"`
	// Encrypt asks for what datagrams carry to be hidden, in both directions. It takes a secret.
	Encrypt bool `json:"encrypt,omitempty"`
	// Milliseconds of silence after which either side counts as lost.
	Milliseconds int64 `json:"timeout_ms"`
}

// Bounds of the timeout that a member may ask for. The least is two pings, see interval.
const (
	minTimeout = 500 * time.Millisecond
	maxTimeout = 10 * time.Minute
)

// Timeout is the silence after which either side counts as lost.
func (r *Request) Timeout() time.Duration {
	return time.Duration(r.Milliseconds) * time.Millisecond
}

// Named is the rank that texts name.
func (r *Request) Named() int {
	if r.InGroup != nil {
		return *r.InGroup
	}
	return r.Rank
}

// check returns an error if a request is wrong.
func (r *Request) check() error {
	switch {
	case r.Version != Version:
		return fmt.Errorf("version %d of the session protocol; want %d", r.Version, Version)
	case r.Ranks < 1 || r.Ranks > collective.MaxRanks:
		return fmt.Errorf("%d ranks; want 1 to %d", r.Ranks, collective.MaxRanks)
	case !r.Child && (r.Rank < 0 || r.Rank >= r.Ranks):
		return fmt.Errorf("rank %d of %d; want 0 to %d", r.Rank, r.Ranks, r.Ranks-1)
	case r.Named() < 0 || r.Named() >= collective.MaxRanks:
		return fmt.Errorf("rank %d of the group; want 0 to %d", r.Named(), collective.MaxRanks-1)
	case r.Milliseconds < minTimeout.Milliseconds() || r.Milliseconds > maxTimeout.Milliseconds():
		return fmt.Errorf("a timeout of %d ms; want %v to %v", r.Milliseconds, minTimeout, maxTimeout)
	}
	return nil
}

// offer is the switch's answer to a request.
type offer struct {
	Error string   `json:"error,omitempty"` // why there is none
	Cause *cause   `json:"cause,omitempty"` // of that
	Ports []uint16 `json:"ports,omitempty"` // of the switch's sockets, by stripe
}

// Sockets is what a member tells of its own end of the data path.
type Sockets struct {
	Ports    []uint16 `json:"ports"`    // by stripe
	Queue    int      `json:"queue"`    // datagrams of the largest size that each surely holds unread
	Datagram int      `json:"datagram"` // the largest UDP payload that the paths carry, in bytes
}

// kinds of notes.
const (
	ping   = "ping"
	ready  = "ready"
	drain  = "drain"
	failed = "error"
	bye    = "bye"
	below  = "below"
)

// note is any frame after the first four.
type note struct {
	Kind  string `json:"kind"`
	Terms *terms `json:"terms,omitempty"` // ready
	Text  string `json:"text,omitempty"`  // error
	Cause *cause `json:"cause,omitempty"` // error
	Below *Below `json:"below,omitempty"` // below
}

// cause is what an Error has besides its text, as it travels.
type cause struct {
	Mismatch bool                     `json:"mismatch,omitempty"`
	Between  *collective.Disagreement `json:"between,omitempty"`
}

// Below is what a child switch tells of its members.
type Below struct {
	// Ranks that have joined below the child since it told of some before.
	Ranks []int `json:"ranks"`
	// InGroup is which ranks of the group they are, each in the place of its Rank; nil: the same.
	InGroup []int `json:"in_group,omitempty"`
	// Chunk is the most bytes of elements that a datagram carries on every path below.
	Chunk int `json:"chunk"`
	// Room is how many bytes of chunks each stripe can hold at every switch
	// below, from each of its members.
	Room int `json:"room"`
}

// terms are innetwork.Terms as they travel, without the timers, which are everyone's own.
type terms struct {
	Job     uint64 `json:"job,string"`
	Number  int    `json:"number"`
	Ranks   int    `json:"ranks"`
	Stripes int    `json:"stripes"`
	Tracks  int    `json:"tracks"`
	Chunk   int    `json:"chunk"`
	Slots   int    `json:"slots"`
	First   uint32 `json:"first"`
	Queue   int    `json:"queue"`
	Wide    bool   `json:"wide"`
}

func pack(t innetwork.Terms, number int) *terms {
	return &terms{t.Job, number, t.Ranks, t.Stripes, t.Tracks, t.Chunk, t.Slots, t.First, t.Queue, t.Wide}
}

func (t *terms) unpack() innetwork.Terms {
	return innetwork.Terms{
		Job: t.Job, Ranks: t.Ranks, Stripes: t.Stripes, Tracks: t.Tracks, Chunk: t.Chunk,
		Slots: t.Slots, First: t.First, Queue: t.Queue, Wide: t.Wide,
	}
}

// check returns an error if the terms that a switch sent do not fit the stripes and the largest datagram.
func (t *terms) check(ranks, stripes, datagram, head int) error {
	switch {
	case t == nil:
		return fmt.Errorf("a note %q without terms", ready)
	case t.Ranks != ranks:
		return fmt.Errorf("terms for %d ranks; want %d", t.Ranks, ranks)
	case t.Stripes != stripes:
		return fmt.Errorf("terms for %d stripes, but ports for %d", t.Stripes, stripes)
	case t.Number < 0 || t.Number >= ranks:
		return fmt.Errorf("member number %d of at most %d", t.Number, ranks)
	case t.Chunk < 8 || t.Chunk%8 != 0 || t.Chunk > datagram-head:
		return fmt.Errorf("chunks of %d bytes; want a multiple of 8 up to %d", t.Chunk, datagram-head)
	case t.Job == 0:
		return errors.New("terms without a job")
	}
	whole := t.unpack()
	return whole.Check()
}

// Error is what the other side of a session says that went wrong.
type Error struct {
	Text string
	// Mismatch says that ranks called or want different things: going on without the switch is no help.
	Mismatch bool
	// Between is who called what, of a Mismatch; nil: only the text tells.
	Between *collective.Disagreement
}

// errorOf is an Error that has come.
func errorOf(text string, c *cause) *Error {
	e := &Error{Text: text}
	if c != nil {
		e.Mismatch, e.Between = c.Mismatch, c.Between
	}
	return e
}

// cause returns the fields to be sent besides the text.
func (e *Error) cause() *cause {
	if !e.Mismatch && e.Between == nil {
		return nil
	}
	return &cause{e.Mismatch, e.Between}
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }
