package route

import (
	"fmt"
	"strings"
	"time"
)

// Config says what a Router knows from the start. Rank and Switches' addresses may differ from rank
// to rank, the rest is alike on all.
type Config struct {
	Rank     int
	Switches []string      // addresses, as many at all ranks; none: operations go directly for good
	NoSwitch string        // why there are none
	Timeout  time.Duration // of the first attempt to join each of them
}

// state is what a Router waits for.
type state uint8

const (
	// Before the first operation goes.
	idle      state = iota // the first operation
	meeting                // all ranks, before any waits for the others at the switch
	joining                // this rank's attempt
	comparing              // how the attempts of all ranks have gone
	opening                // the direct path
	// Through a switch.
	switched // a notice, or the loss of the switch
	losing   // a notice, since this rank has given one
	// Directly.
	rejoining // this rank's attempt, or a notice
	notifying // a notice, since this rank has given one
	// On the way from a switch, or from attempts to join one, to the direct path.
	cancelling // the end of this rank's attempt
	stopping   // the engine's record
	exchanging // the records of all ranks
	connecting // the direct path
	resuming   // the engine
	// At the end.
	settled // nothing: there are no switches
	failing // the end of the group
)

// Router is one rank's part.
type Router struct {
	cfg    Config
	state  state
	orders []Order

	epoch    uint32
	pause    time.Duration // before the last attempt to join again, 0: none since a switch served
	served   uint64        // operations that switches had done when this epoch began, or this one came in use
	failures []string      // of the first attempts, by switch
	streams  bool          // the direct path is open

	notice  Noticed  // the latest
	lost    Lost     // the latest
	reason  string   // why the epoch ends
	records [][]byte // of all ranks, about it

	cancelled uint32 // the last epoch in which the first attempt was given up, since another rank's has failed
}

// New returns a router that waits for Started.
func New(c Config) *Router { return &Router{cfg: c} }

// Settled reports whether there will be no orders any more: operations go directly for good.
func (r *Router) Settled() bool { return r.state == settled }

// Handle takes an event and returns the orders that follow.
func (r *Router) Handle(e Event) []Order {
	r.orders = nil
	switch e := e.(type) {
	case Started:
		r.start()
	case Agreed:
		r.agreed(e.Records)
	case Joined:
		r.joined(e.Operations)
	case JoinFailed:
		r.joinFailed(e)
	case Noticed:
		if e.Epoch > r.notice.Epoch {
			r.notice = e
		}
	case Lost:
		if e.Epoch > r.lost.Epoch {
			r.lost = e
		}
	case Stopped:
		r.state = exchanging
		r.order(Agree(e))
	case StreamsOpen:
		r.streamsOpen()
	case Resumed:
		if e.Operations > r.served {
			r.pause = 0 // a switch that is joined and does not serve is not worth joining again soon
		}
		r.served = e.Operations
		r.nextEpoch()
	}
	r.endEpoch()
	return r.orders
}

func (r *Router) order(o Order) { r.orders = append(r.orders, o) }

func (r *Router) start() {
	if len(r.cfg.Switches) == 0 {
		r.beginDirectly(r.cfg.NoSwitch)
		return
	}
	r.state = meeting
	r.order(Agree{[]byte{1}})
}

// agreed takes the records that all ranks get alike.
func (r *Router) agreed(records [][]byte) {
	switch r.state {
	case meeting:
		r.joinTogether()
	case comparing:
		r.compare(records)
	case exchanging:
		r.records = records
		if r.streams {
			r.resume()
			return
		}
		r.state = connecting
		r.order(OpenStreams{})
	}
}

// joinTogether begins the next epoch, in which all ranks join or none does.
func (r *Router) joinTogether() {
	r.epoch++
	r.state = joining
	r.order(Join{Epoch: r.epoch, Address: r.address(), Within: r.cfg.Timeout})
}

// address returns where the switch of this epoch is.
func (r *Router) address() string {
	return r.cfg.Switches[int(r.epoch-1)%len(r.cfg.Switches)]
}

// What a rank's record says first of its attempt.
const (
	hasJoined = iota // and no more: a record of the mesh is never empty
	hasFailed
	hasWaited // for another rank, which has failed
)

// compare looks at how the attempts of all ranks have gone. The first rank that has failed gives the reason
// to all; one that has waited only if there is none.
func (r *Router) compare(records [][]byte) {
	var reason []byte
	for _, record := range records {
		if record[0] == hasFailed && (reason == nil || reason[0] != hasFailed) || record[0] == hasWaited && reason == nil {
			reason = record
		}
	}
	if reason != nil {
		r.order(Close{})
		r.failures = append(r.failures, strings.ReplaceAll(string(reason[1:]), "\n", "; "))
		if len(r.failures) < len(r.cfg.Switches) {
			r.joinTogether()
		} else {
			r.beginDirectly(strings.Join(r.failures, "; "))
		}
		return
	}
	r.state = switched
	r.order(TellSwitched{r.epoch, r.address()})
	r.order(Begin{r.epoch, true})
}

// beginDirectly lets the first operations go without a switch.
func (r *Router) beginDirectly(reason string) {
	r.order(SetReason{reason})
	if len(r.cfg.Switches) > 0 {
		r.order(TellDirect{reason})
	}
	r.state = opening
	r.order(OpenStreams{})
}

func (r *Router) streamsOpen() {
	r.streams = true
	if r.state == connecting {
		r.resume()
		return
	}
	r.order(Begin{r.epoch, false})
	if len(r.cfg.Switches) == 0 {
		r.state = settled
		return
	}
	r.nextEpoch()
}

// nextEpoch tries to join a switch, while operations go directly.
func (r *Router) nextEpoch() {
	r.epoch++
	r.rejoin()
}

// rejoin makes an attempt after a pause, each twice the one before.
func (r *Router) rejoin() {
	r.pause = min(max(2*r.pause, firstPause), lastPause)
	r.state = rejoining
	r.order(Join{Epoch: r.epoch, Address: r.address(), After: jitter(r.pause, r.cfg.Rank, r.epoch)})
}

func (r *Router) joined(operations uint64) {
	switch r.state {
	case joining:
		r.state = comparing
		r.served = operations
		r.order(Agree{[]byte{hasJoined}})
	case rejoining:
		r.state = switched
		r.served = operations
		r.order(TellSwitched{r.epoch, r.address()})
		r.order(Use{})
	case cancelling:
		r.order(Close{})
		r.stop()
	}
}

// joinFailed repeats an attempt to join again that does not reach a switch; with several switches, rank 0 makes all go
// on to the next. If it fails once all ranks have sessions, the epoch ends for all: ranks with datagrams that pass use
// the switch, rank 0 announces it, and a job that has begun takes nobody in.
func (r *Router) joinFailed(e JoinFailed) {
	switch r.state {
	case joining:
		r.state = comparing
		// The session, if there is one, stays until all have given their reasons: its end would be
		// the reason of others.
		how := byte(hasWaited)
		if !e.Waited && r.cancelled < r.epoch {
			how = hasFailed
			if !e.All {
				r.order(Notify{r.epoch, e.Reason}) // ranks that wait for this one do so for nothing
			}
		}
		r.order(Agree{fmt.Appendf([]byte{how}, "rank %d: %s", r.cfg.Rank, e.Reason)})
	case rejoining:
		r.order(Close{})
		r.order(TellFailure{r.epoch, e.Reason})
		if e.All || r.cfg.Rank == 0 && len(r.cfg.Switches) > 1 {
			r.state = notifying
			r.order(Notify{r.epoch, e.Reason})
			return
		}
		r.rejoin()
	case cancelling:
		r.order(Close{})
		r.stop()
	}
}

// endEpoch ends the epoch if a notice says so, or gives notice if the switch is lost.
func (r *Router) endEpoch() {
	if r.notice.Epoch < r.epoch {
		if r.state == switched && r.lost.Epoch == r.epoch {
			r.lose()
		}
		return
	}
	switch r.state {
	case joining:
		if r.cancelled < r.epoch {
			r.cancelled = r.epoch
			r.order(Cancel{})
		}
	case switched, losing:
		r.reason = fmt.Sprintf("rank %d lost the switch at %s: %s", r.notice.Rank, r.address(), r.notice.Text)
		r.order(TellLost{r.reason})
		r.stop()
	case rejoining:
		r.state = cancelling
		r.reason = r.notice.Text
		r.order(Cancel{})
	case notifying:
		r.reason = r.notice.Text
		r.stop()
	}
}

// lose tells all ranks that the switch is lost, or that they disagree.
func (r *Router) lose() {
	if r.lost.Mismatch {
		r.state = failing
		r.order(Report{r.lost.Text})
		return
	}
	r.state = losing
	r.order(Notify{r.epoch, r.lost.Text})
}

// stop ends an epoch: nobody uses the switch any more, and operations that it has left undone are finished directly.
func (r *Router) stop() {
	r.state = stopping
	r.order(Stop{r.epoch})
}

func (r *Router) resume() {
	r.state = resuming
	r.order(SetReason{r.reason}) // a waiting caller may look at it next
	r.order(Resume{r.records})
	r.records = nil
}
