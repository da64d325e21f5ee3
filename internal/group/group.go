package group

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Fault is the error with which every operation of a group ends once something
// has gone wrong; it names the rank at fault.
type Fault = mesh.Fault

// The kinds of Fault.
const (
	Dead     = mesh.Dead     // a rank died, stopped, or was cut off
	Mismatch = mesh.Mismatch // ranks disagree about an operation
	Closed   = mesh.Closed   // this rank closed the group
	Local    = mesh.Local    // something on a rank failed that has nothing to do with its peers
	Path     = mesh.Path     // data do not pass between two ranks that both answer
	Left     = mesh.Left     // a rank closed the group while others still used it
	Aborted  = mesh.Aborted  // a rank gave the group up, and said why
)

// Group is a communicator that this rank has joined.
type Group struct {
	agreed *team.Plan
	info   Info
	meter  *overlap.Meter
	clock  engine.Clock // of all lanes
	// levels are one or two: the column, which the network joins, and behind it the node, if there is one.
	levels   []*level
	column   *level
	composer composer
	region   hostnet.Region // of memory that the ranks of this host share; nil: there is none
	// outputs are memory for results that ranks of this host share; nil: there is none.
	outputs  *outputs
	mesh     *mesh.Mesh
	lobby    *lobby
	observer observer
	log      *slog.Logger
	link     *sending
	// joinedBy is how Allgathers travelled when the group was joined.
	joinedBy gathering
	// registers is for the user's memory; nil: nothing is registered.
	registers fabric.Registers
	free      func() error                   // frees the resources that both fabrics share
	withdraw  func()                         // removes its page for other processes; nil: it has none
	trace     []*trace.Lane                  // what its lanes did last; none: MCAST_TRACE is off
	failure   atomic.Pointer[failure]        // the fault, and the trace of this process until then
	unrecord  func()                         // takes it from the traces of this process; nil: it is in none
	staged    atomic.Pointer[staging.Copier] // operations on device memory; nil: there were none

	life    context.Context // ends with the group
	end     context.CancelCauseFunc
	mu      sync.Mutex
	started bool // there are engines

	posting sync.RWMutex // held for reading to post to one lane, else to keep the operations of a call together

	counters counters
	warnings warnings
	telling  sync.Mutex                // what this rank says of itself, to those who ask over the mesh
	released bool                      // there is nothing to say any more; guarded by telling
	waiting  atomic.Pointer[[]Waiting] // of the monitor
	lately   Lately                    // which ranks were waited for most in recent time; the monitor updates it
	watchers sync.WaitGroup            // goroutines that end with life
	route    atomic.Pointer[routeInfo] // how Reduce-Scatters travel
	waited   [2]overlap.Ledger         // of the gather and the reduce lane: waiting times by phase
	books    books                     // times of all operations, by kind and size; they share the ledgers of waited

	leaving   bool                                   // this rank posts nothing more; guarded by posting
	departed  [len(onLane)]atomic.Pointer[departure] // who leaves, having posted least
	once      sync.Once
	gone      chan struct{} // closed when Close is done
	impatient chan error    // of a ctx that ends the wait of Close
	err       error         // of Close
}

// Rank returns this rank's number.
func (g *Group) Rank() int { return g.agreed.Rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.agreed.Size }

// Nodes returns the ranks of each host, where the group works on two levels; else nil. Sums are then made in the order
// of reduce.FoldNested.
func (g *Group) Nodes() [][]int { return g.agreed.Nodes }

// Work is an operation in flight.
type Work struct {
	*engine.Work
	lane   *overlap.Lane
	before []*Work // earlier steps on another lane, which a wait drives first
}

// Wait waits until the operation is done and returns its outcome, or until
// ctx ends and returns its error; the operation then goes on.
func (w *Work) Wait(ctx context.Context) error {
	if ctx == nil || ctx.Done() == nil {
		return w.WaitUntil(time.Time{})
	}
	defer context.AfterFunc(ctx, w.nudge)()
	if !w.drive(ctx.Done(), time.Time{}) {
		return ctx.Err()
	}
	return w.Err()
}

// WaitUntil is Wait with a deadline; the zero time is none.
func (w *Work) WaitUntil(deadline time.Time) error {
	if !w.drive(nil, deadline) {
		return context.DeadlineExceeded
	}
	return w.Err()
}

// drive reports whether the operation was done before quit was closed and the deadline had passed.
func (w *Work) drive(quit <-chan struct{}, deadline time.Time) bool {
	for _, step := range w.before {
		if !step.drive(quit, deadline) {
			return false
		}
	}
	return w.lane.Drive(w.Done(), quit, deadline)
}

// nudge has drive look at once whether it shall go on.
func (w *Work) nudge() {
	for _, step := range w.before {
		step.nudge()
	}
	w.lane.Nudge()
}

// Help does a little of what the group has to do, if nobody else is at it: see overlap.Lane.
func (g *Group) Help() {
	for _, l := range g.levels {
		l.help()
	}
}

// posted leaves the operation to the agents.
func (w *Work) posted() {
	notified := w.lane
	for _, step := range w.before {
		if step.lane != notified {
			step.lane.Posted()
			notified = step.lane
		}
	}
	w.lane.Posted()
}

// Allgather gives every rank the shards of all ranks in rank order. send is
// this rank's shard of N bytes, recv takes P*N. send may be recv's own slot,
// recv[rank*N:(rank+1)*N]; otherwise they must not overlap. recv may be an Output's memory.
func (g *Group) Allgather(send, recv []byte) error {
	return g.wait(g.startAllgather(send, recv))
}

// StartAllgather begins an Allgather. The buffers belong to the group until
// the work is done.
func (g *Group) StartAllgather(send, recv []byte) (*Work, error) {
	return g.posted(g.startAllgather(send, recv))
}

func (g *Group) startAllgather(send, recv []byte) (*Work, error) {
	if len(recv) != len(send)*g.agreed.Size {
		return nil, argument("allgather: recv has %d bytes; %d ranks with a shard of %d bytes need %d",
			len(recv), g.agreed.Size, len(send), len(send)*g.agreed.Size)
	}
	own := recv[g.agreed.Rank*len(send):][:len(send)]
	if overlaps(send, recv) && !engine.SameMemory(send, own) {
		return nil, argument("allgather: send overlaps recv without being its own slot, recv[%d:%d]",
			g.agreed.Rank*len(send), (g.agreed.Rank+1)*len(send))
	}
	p, err := g.outputs.take(recv)
	if err != nil {
		return nil, err
	}
	g.composer.lock()
	defer g.composer.unlock()
	if p != nil {
		return g.gatherOutput(send, own, recv, p)
	}
	return g.composer.allgather(send, own, recv, piece{})
}

// Broadcast copies root's buf to every rank's.
func (g *Group) Broadcast(buf []byte, root int) error {
	return g.wait(g.startBroadcast(buf, root))
}

// StartBroadcast begins a Broadcast.
func (g *Group) StartBroadcast(buf []byte, root int) (*Work, error) {
	return g.posted(g.startBroadcast(buf, root))
}

func (g *Group) startBroadcast(buf []byte, root int) (*Work, error) {
	if root < 0 || root >= g.agreed.Size {
		return nil, argument("broadcast: root %d is not a rank; ranks are 0 to %d", root, g.agreed.Size-1)
	}
	g.composer.lock()
	defer g.composer.unlock()
	return g.composer.broadcast(buf, root)
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier() error { return g.wait(g.startBarrier()) }

// StartBarrier begins a Barrier.
func (g *Group) StartBarrier() (*Work, error) { return g.posted(g.startBarrier()) }

func (g *Group) startBarrier() (*Work, error) {
	g.composer.lock()
	defer g.composer.unlock()
	return g.composer.barrier()
}

// wait drives an operation to its end: for calls that block.
func (g *Group) wait(w *Work, err error) error {
	if err != nil {
		return err
	}
	return w.WaitUntil(time.Time{})
}

// posted leaves an operation to the lane: for calls that do not block.
func (g *Group) posted(w *Work, err error) (*Work, error) {
	if err == nil {
		w.posted()
	}
	return w, err
}
