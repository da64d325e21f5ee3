package innetwork

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Pauses between two repeats of the same thing to the same member: none before the first repeat,
// firstRepeat before the second, and from then on each twice the one before, up to lastRepeat.
// However often a member asks, a node sends no more than that.
const (
	firstRepeat = time.Millisecond
	lastRepeat  = 64 * time.Millisecond
)

// repeatAfter returns how long after it was sent last something may be sent again that was
// repeated so often already.
func repeatAfter(repeats int) Time {
	if repeats == 0 {
		return 0
	}
	return min(firstRepeat<<min(repeats-1, 16), lastRepeat)
}

// MemberMismatchError says that two members of a node called different things.
type MemberMismatchError struct {
	Members [2]int // their numbers at the node
	What    [2]string
}

// Error names both by their numbers.
func (e *MemberMismatchError) Error() string {
	return fmt.Sprintf("members disagree: member %d called %s, member %d %s", e.Members[0], e.What[0], e.Members[1],
		e.What[1])
}

// PathError says that datagrams with elements do not pass between a node and a member, although
// polls and their answers do: something was missing on the other side in all polls of so long a
// time, and nothing arrived, however often it was sent.
type PathError struct {
	Member int
	Down   bool // from the node to the member
	Bytes  int  // of the payload of a datagram that does not arrive
	For    Time
}

// Error names the direction, and the member by its number at the node.
func (e *PathError) Error() string {
	how := "from"
	if e.Down {
		how = "to"
	}
	return fmt.Sprintf("payloads of %d bytes %s member %d have not arrived for %v", e.Bytes, how, e.Member, e.For)
}

// overdue is what polls of a member show to be missing, in one direction, since something arrived.
type overdue struct {
	arrived uint32 // arrivals counted at the first of these polls
	repeats int    // polls with an answer that asked for missing data
	named   Time   // when such an answer was last given
	polled  Time   // the last poll
	waited  Time   // for how long polls have shown the same
	active  bool
}

// clear notes that nothing is missing.
func (o *overdue) clear() { o.active = false }

// poll notes that a poll shows something to be missing, and returns for how long nothing has
// arrived by polls that heard of answers to those before: whether answers come is another question,
// which the member asks itself. Between two polls a quarter of limit counts at most: a member that
// stood still did not wait.
func (o *overdue) poll(now Time, arrived uint32, heard bool, limit Time) Time {
	if !o.active || o.arrived != arrived {
		*o = overdue{arrived: arrived, polled: now, active: true}
		return 0
	}
	if heard {
		o.waited += min(now-o.polled, limit/4)
	}
	o.polled = now
	return o.waited
}

// name reports whether the answer to a poll may ask for missing contributions.
func (o *overdue) name(now Time) bool {
	if o.repeats > 0 && now-o.named < repeatAfter(o.repeats) {
		return false
	}
	o.repeats++
	o.named = now
	return true
}

// checkPath ends the job where nothing has arrived for too long of what a poll shows to be missing.
func (s *Stage) checkPath(waited Time, path PathError) {
	if s.err == nil && s.cfg.Timeout > 0 && waited >= s.cfg.Timeout {
		path.For = waited
		s.err = &path
	}
}

// Echo reports whether an echo with n payload bytes is of a member of this job, and turns its header into the header of
// the answers.
func (s *Stage) Echo(member int, h *wire.Slot, n int) bool {
	if !s.meant(h, wire.Echo, member) || n > s.cfg.Chunk {
		s.stats.Malformed++
		return false
	}
	h.Slot = uint32(n)
	return true
}
