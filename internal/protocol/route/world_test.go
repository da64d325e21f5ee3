package route

import (
	"container/heap"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// nodeJoinTimeout is how long a node keeps ranks that wait for others.
const nodeJoinTimeout = 30 * time.Second

// world is some ranks with a Router each, a mesh and some switches, in virtual time. What the mesh
// and the switches do is what internal/mesh and internal/switchd promise, in any order that they
// allow: how long each message takes, delay says.
type world struct {
	require.TestingT
	now      time.Duration
	events   queue
	delay    func() time.Duration
	log      func(format string, args ...any)
	ranks    []*rank
	switches []*node
	ended    bool // the group

	agreements []*agreement
	begun      *Begin // by the first rank; all begin alike
	left       uint32 // the last epoch from which some rank has gone on directly
}

// agreement is one of all ranks.
type agreement struct {
	about   string // what the first to come means
	records [][]byte
	present int
}

// rank is one of them, with its ends of the mesh and of the switch, and its engine.
type rank struct {
	*world
	number  int
	router  *Router
	agreed  int    // agreements that it has come to
	latest  uint32 // number of the notice
	attempt *attempt
	conn    *attempt // of the last attempt, unless closed
	stopped uint32   // the last epoch under which the engine was stopped
	using   *job     // what the engine's operations go through; nil: directly, or not at all
	direct  bool     // operations go directly
	started bool
	opening bool           // its streams
	streams bool           // they are open
	broken  map[*node]bool // datagrams do not pass
	cutOff  map[*node]bool // it cannot connect
	served  uint64         // operations through switches
	heard   time.Duration  // when it was told something last
}

// attempt is one to join a switch, and the session that it has brought.
type attempt struct {
	rank   *rank
	order  Join
	job    *job // nil: no session
	ready  bool // all ranks have sessions
	over   bool // answered
	joined bool
	lost   bool
	closed bool
}

// node is a switch.
type node struct {
	*world
	address string
	up      bool
	job     *job
}

// job is what a switch does for the ranks under an epoch.
type job struct {
	node     *node
	epoch    uint32
	sessions map[int]*attempt
	running  bool
	ended    string // why
}

func newWorld(t require.TestingT, ranks, switches int, delay func() time.Duration, log func(string, ...any)) *world {
	w := &world{TestingT: t, delay: delay, log: log}
	c := Config{NoSwitch: "no switch is configured", Timeout: 3 * time.Second}
	for i := range switches {
		w.switches = append(w.switches, &node{world: w, address: fmt.Sprintf("switch%d", i), up: true})
		c.Switches = append(c.Switches, w.switches[i].address)
	}
	for i := range ranks {
		c.Rank = i
		w.ranks = append(w.ranks,
			&rank{world: w, number: i, router: New(c), broken: map[*node]bool{}, cutOff: map[*node]bool{}})
	}
	return w
}

// after has something done when so much time has passed.
func (w *world) after(d time.Duration, do func()) {
	heap.Push(&w.events, event{w.now + d, w.events.pushed, do})
	w.events.pushed++
}

// soon has something done when a message has come there.
func (w *world) soon(do func()) { w.after(w.delay(), do) }

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now + d; ; {
		if w.events.Len() == 0 || w.events.all[0].at > end || w.ended {
			w.now = end
			return
		}
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

// handle tells the router, and carries out its orders.
func (r *rank) handle(e Event) {
	if r.ended {
		return
	}
	r.heard, r.started = r.now, true
	about := fmt.Sprintf("state %d of epoch %d", r.router.state, r.router.epoch)
	r.log("%d <- %s", r.number, text(e))
	orders := r.router.Handle(e)
	for i, o := range orders {
		r.log("%d %s", r.number, text(o))
		if answered(o) {
			require.Equal(r, len(orders)-1, i, "rank %d orders %v after %s, on %s", r.number, orders, text(o), about)
		}
		r.carryOut(o)
	}
}

// answered reports whether an order has an answer before which nothing else must be done.
func answered(o Order) bool {
	switch o.(type) {
	case Agree, Stop, OpenStreams, Resume:
		return true
	}
	return false
}

func (r *rank) carryOut(o Order) {
	switch o := o.(type) {
	case Agree:
		r.agree(o.Record)
	case Notify:
		r.notify(Noticed{o.Epoch, r.number, o.Text})
	case Report:
		r.ended = true
	case Join:
		r.join(o)
	case Cancel:
		a := r.attempt
		require.NotNil(r, a, "rank %d cancels no attempt", r.number)
		r.soon(func() { a.fail("it was cancelled") })
	case Close:
		require.NotNil(r, r.conn, "rank %d closes nothing", r.number)
		r.conn.close()
		r.conn = nil
	case Begin, Use, Stop, Resume:
		r.steer(o)
	case OpenStreams:
		r.openStreams()
	}
}

// agree is mesh.Agree: nobody hears the records before all have come.
func (r *rank) agree(record []byte) {
	if r.agreed == len(r.agreements) {
		r.agreements = append(r.agreements, &agreement{records: make([][]byte, len(r.ranks))})
	}
	a := r.agreements[r.agreed]
	r.agreed++
	about := fmt.Sprintf("%d, epoch %d", r.router.state, r.router.epoch)
	if a.present == 0 {
		a.about = about
	}
	require.Equal(r, a.about, about, "rank %d agrees about something else", r.number)
	require.NotEmpty(r, record)
	a.records[r.number] = record
	if a.present++; a.present == len(r.ranks) {
		for _, q := range r.ranks {
			q.soon(func() { q.handle(Agreed{a.records}) })
		}
	}
}

// notify acts as the mesh does with a notice: it passes on news.
func (r *rank) notify(n Noticed) {
	if n.Epoch <= r.latest {
		return
	}
	r.latest = n.Epoch
	for _, q := range r.ranks {
		if q != r {
			q.soon(func() { q.notify(n) })
		}
	}
	r.soon(func() { r.handle(n) })
}

// openStreams waits until all ranks open them.
func (r *rank) openStreams() {
	require.False(r, r.opening, "rank %d opens its streams again", r.number)
	r.opening = true
	for _, q := range r.ranks {
		if !q.opening {
			return
		}
	}
	for _, q := range r.ranks {
		q.soon(func() {
			q.streams = true
			q.handle(StreamsOpen{})
		})
	}
}

// steer is the engine, with what must hold of its operations.
func (r *rank) steer(o Order) {
	switch o := o.(type) {
	case Begin:
		if r.begun == nil {
			r.begun = &o
		}
		require.Equal(r, *r.begun, o, "rank %d begins otherwise than others", r.number)
		if r.direct = !o.Switched; o.Switched {
			r.use()
		} else {
			require.True(r, r.streams, "rank %d begins directly without streams", r.number)
		}
	case Use:
		require.True(r, r.direct, "rank %d joins while operations do not go directly", r.number)
		r.use()
	case Stop:
		r.stopped = o.Epoch
		if r.using != nil {
			require.Equal(r, o.Epoch, r.using.epoch)
			r.using.sessions[r.number].close()
		}
		r.using, r.direct = nil, false
		r.soon(func() { r.handle(Stopped{fmt.Appendf(nil, "rank %d, epoch %d", r.number, o.Epoch)}) })
	case Resume:
		require.Nil(r, r.conn, "rank %d goes on directly and keeps a session", r.number)
		require.True(r, r.streams, "rank %d goes on directly without streams", r.number)
		require.Len(r, o.Records, len(r.ranks))
		for q, record := range o.Records {
			require.Equal(r, fmt.Sprintf("rank %d, epoch %d", q, r.stopped), string(record))
			require.GreaterOrEqual(r, r.ranks[q].stopped, r.stopped,
				"rank %d goes on directly, and rank %d has not left epoch %d", r.number, q, r.stopped)
		}
		r.direct, r.left = true, max(r.left, r.stopped)
		r.soon(func() { r.handle(Resumed{r.served}) })
	}
}

// use hands the connection of the last attempt to the engine.
func (r *rank) use() {
	a := r.conn
	require.True(r, a != nil && a.joined && !a.closed, "rank %d uses a switch that it has not joined", r.number)
	require.True(r, a.job.running)
	require.Greater(r, a.order.Epoch, r.left, "rank %d uses a switch that others have left and gone on without", r.number)
	for _, q := range r.ranks {
		// The world of reducescatter.Lane begins with that.
		require.True(r, !r.direct || q.direct || q.stopped >= a.order.Epoch,
			"rank %d uses a switch, and rank %d has not gone on from the last one", r.number, q.number)
		if q.using != nil {
			require.Same(r, a.job, q.using, "ranks %d and %d use different switches, or epochs", r.number, q.number)
		}
	}
	r.using, r.conn = a.job, nil
	r.breakPath(a.job.node, r.broken[a.job.node])
}

// reduce does one operation through the switch, if all ranks are at it.
func (w *world) reduce() bool {
	for _, r := range w.ranks {
		if r.using == nil || r.using != w.ranks[0].using || r.using.ended != "" || r.broken[r.using.node] {
			return false
		}
	}
	for _, r := range w.ranks {
		r.served++
	}
	return true
}

// lose has a rank notice that the switch that it has joined is lost to it.
func (r *rank) lose(a *attempt, e Lost) {
	if a.joined && !a.closed && !a.lost {
		a.lost = true
		r.handle(e)
	}
}

// text is an event or an order in words.
func text(v any) string {
	s := strings.TrimPrefix(fmt.Sprintf("%T", v), "route.")
	switch v := v.(type) {
	case Agreed:
		return fmt.Sprintf("%s %q", s, v.Records)
	case Agree:
		return fmt.Sprintf("%s %q", s, v.Record)
	case Stopped:
		return fmt.Sprintf("%s %q", s, v.Record)
	case Resume:
		return fmt.Sprintf("%s %q", s, v.Records)
	case Join:
		s = fmt.Sprintf("%s %s, epoch %d", s, v.Address, v.Epoch)
		if v.After > 0 {
			s += fmt.Sprintf(", after %v", v.After.Round(time.Millisecond))
		}
		if v.Within > 0 {
			s += fmt.Sprintf(", within %v", v.Within)
		}
		return s
	}
	return strings.TrimSuffix(s+" "+strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%+v", v), "{"), "}"), " ")
}

type event struct {
	at time.Duration
	n  int
	do func()
}

// queue is a heap of events by time, and by age where that is the same.
type queue struct {
	all    []event
	pushed int
}

func (q *queue) Len() int { return len(q.all) }
func (q *queue) Less(i, j int) bool {
	a, b := &q.all[i], &q.all[j]
	return a.at < b.at || a.at == b.at && a.n < b.n
}
func (q *queue) Swap(i, j int) { q.all[i], q.all[j] = q.all[j], q.all[i] }
func (q *queue) Push(e any)    { q.all = append(q.all, e.(event)) }
func (q *queue) Pop() any {
	e := q.all[len(q.all)-1]
	q.all = q.all[:len(q.all)-1]
	return e
}
