package multicast

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// How much of its shard a root keeps under way. The window is what receivers'
// queues hold, which on a slow link takes long: all that shares the link, the
// requests and handshakes of this very operation among it, waits that long. So
// a root keeps less under way where it has seen that its chunks leave slowly:
// what leaves within the time that credit takes and queueTime, beside a floor.
// That the floor is the same for all makes roots whose streams meet in one queue
// come to equal shares of it. Where several roots share a chain, each would need
// word of what those before it have under way, so there it is a window.

// queueTime is how long what a root has under way may take to leave, beside the floor and
// what credit takes on an idle path.
const queueTime = 5 * time.Millisecond

// flow is how fast the chunks of this rank's shards have left receivers' queues.
type flow struct {
	rate  float64       // chunks a second, 0: not measured yet
	delay time.Duration // the least that credit took longer than the chunks it was for
}

// flow returns that of operations like this one: a Broadcast has all of a link.
func (c *Comm) flow(p *op) *flow {
	if p.shape.coll == wire.Broadcast {
		return &c.flows[1]
	}
	return &c.flows[0]
}

// Share says whether a Reduce-Scatter of this rank shares its links with what it multicasts. That
// keeps a window of its own under way, and a root that keeps less gets less than its share.
func (c *Comm) Share(shared bool) { c.shared = shared }

// learn takes how the own shard of an operation got on: when no more credit comes for it, or when it is done.
func (c *Comm) learn(p *op) {
	c.flow(p).learn(&p.progress, p.floor)
	p.progress = progress{}
}

// inFlight returns how many chunks of its shard this rank keeps under way; shared: see Comm.Share.
func (f *flow) inFlight(p *op, shared bool) int {
	if f.rate == 0 || shared {
		return p.window
	}
	queue := queueTime
	if p.shape.coll == wire.Broadcast {
		queue = 0 // the floor, of one root in place of all, is enough of a queue
	}
	more := f.rate * (queue + f.delay).Seconds()
	return min(p.window, p.floor+int(min(more, float64(p.window))))
}

// learn takes the progress of a shard. The best rate so far counts, and fades.
func (f *flow) learn(p *progress, floor int) {
	took := p.last - p.start
	if p.reached-p.began < floor || took <= 0 {
		return // a few messages say nothing about a rate
	}
	rate := float64(p.reached-p.began) / took.Seconds()
	delay := max(0, p.first-p.start-time.Duration(float64(p.heard-p.began)/rate*float64(time.Second)))
	if f.rate == 0 {
		f.delay = delay
	}
	f.rate = max(rate, f.rate+(rate-f.rate)/8)
	f.delay = min(f.delay, delay)
}

// progress is how credit for a shard came in.
type progress struct {
	start, first, last    Time // when the first chunk was sent, and when credit came at first and at last
	began, heard, reached int  // limits then
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
	if p.heard == 0 {
		p.first, p.heard = now, limit
	}
	p.last, p.reached = now, limit
}
