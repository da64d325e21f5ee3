package multicast

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// How much of its shard a root keeps under way. Receivers' queues hold a window, which takes long to leave on a slow
// link: all traffic that shares the link, even the requests and handshakes of this very operation, waits that long. So
// a root keeps less under way where it has seen that its chunks leave slowly: a floor, and the chunks that leave in the
// time that credit takes and a queue may take. The floor is the same for all, so roots with streams that meet in one
// queue come to equal shares. Where several roots share a chain, each would need to know how much the ones before
// it have under way, so there it is a window.

// flow is how fast the chunks of this rank's shards have left receivers' queues.
type flow struct {
	rate  float64       // chunks a second, 0: not measured yet
	delay time.Duration // the least that credit took longer than the chunks it was for
	// queue is how long the chunks that a root has under way may take to leave, beside the floor and the time that credit
	// takes on an idle path.
	queue time.Duration
}

// flows are the flow of Allgathers, where roots share each link, and of Broadcasts, where one root often has all of a
// link.
type flows struct{ many, one flow }

func newFlows() flows {
	// The floor, of one root in place of all, is enough of a queue.
	return flows{many: flow{queue: 5 * time.Millisecond}}
}

// of returns the flow of operations like one.
func (f *flows) of(l *layout) *flow {
	if l.coll == wire.Broadcast {
		return &f.one
	}
	return &f.many
}

// inFlight returns how many chunks of its shard a root keeps under way. shared: see Comm.Share.
func (f *flow) inFlight(window, floor int, shared bool) int {
	if f.rate == 0 || shared {
		return window
	}
	more := f.rate * (f.queue + f.delay).Seconds()
	return min(window, floor+int(min(more, float64(window))))
}

// learn takes the progress of a shard when it is over. The best rate so far counts, and fades.
func (f *flow) learn(p *progress, floor int) {
	took, chunks, early := p.last-p.start, p.reached-p.began, p.firstLimit-p.began
	delayed, behind := p.first-p.start, p.behind
	*p = progress{}
	if chunks < floor || took <= 0 || behind && f.rate == 0 {
		return // a few messages say nothing about a rate
	}
	rate := float64(chunks) / took.Seconds()
	delay := max(0, delayed-time.Duration(float64(early)/rate*float64(time.Second)))
	if f.rate == 0 {
		f.delay = delay
	} else if !behind {
		f.delay = min(f.delay, delay)
	}
	f.rate = max(rate, f.rate+(rate-f.rate)/8)
}

// progress is how credit for the own shard came in. It is zero until the first chunk is sent.
type progress struct {
	start, first, last         Time // when the first chunk was sent, and when credit came at first and at last
	began, firstLimit, reached int  // the limits then; they never fall
	// behind: chunks sent before were on their way then, and when credit for them comes says nothing
	// of how long it takes.
	behind bool
}

// sent notes that chunks were sent under a limit.
func (p *progress) sent(now Time, limit int) {
	if p.reached == 0 {
		p.start, p.began, p.reached = now, limit, limit
	}
}

// credited notes a limit that has come.
func (p *progress) credited(now Time, limit int) {
	if p.reached == 0 || limit <= p.reached {
		return
	}
	if p.firstLimit == 0 {
		p.first, p.firstLimit = now, limit
	}
	p.last, p.reached = now, limit
}
