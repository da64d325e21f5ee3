package group

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/internal/team"
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
	plan    *team.Plan // replaced while it joins, by the goroutine that joins; faults that come before do not read it
	mesh    *mesh.Mesh
	peers   *bootstrap.Listener
	monitor *monitor.Monitor
	log     *slog.Logger
	clock   engine.Clock // of all lanes

	// These are there once the fabric is open.
	mu        sync.Mutex
	ops       *hierarchy.Operations // guarded by mu while the group joins; nil until there are engines
	messages  *messenger            // there once ops is
	region    hostnet.Region        // of memory that the ranks of this host share; nil: there is none
	link      *fabrics.SendingLink
	registers fabric.Registers // is for the user's memory; nil: nothing is registered
	free      func() error     // frees the resources that both fabrics share
	iface     string           // of multicast; empty for shared memory

	staged  atomic.Pointer[staging.Copier] // operations on device memory; nil: there were none
	life    context.Context                // ends with the group
	end     context.CancelCauseFunc
	leaving leaving
}

// Rank returns this rank's number.
func (g *Group) Rank() int { return g.plan.Rank }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.plan.Size }

// Nodes returns the ranks of each host, where the group works on two levels; else nil. Sums are then made in the order
// of reduce.FoldNested.
func (g *Group) Nodes() [][]int { return g.plan.Nodes }

// Work is an operation in flight.
type Work = hierarchy.Work

// Output is a place for the result of one Allgather, in memory that the ranks of a host share.
type Output = hierarchy.Output

// Help does a little of what the group has to do, if nobody else is at it: see overlap.Lane.
func (g *Group) Help() {
	for _, l := range g.ops.Levels() {
		l.Help()
	}
	if g.messages.engine.InFlight() > 0 {
		g.messages.lane.Help()
	}
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
	if len(recv) != len(send)*g.plan.Size {
		return nil, argument("allgather: recv has %d bytes; %d ranks with a shard of %d bytes need %d",
			len(recv), g.plan.Size, len(send), len(send)*g.plan.Size)
	}
	own := recv[g.plan.Rank*len(send):][:len(send)]
	if engine.Overlaps(send, recv) && !engine.SameMemory(send, own) {
		return nil, argument("allgather: send overlaps recv without being its own slot, recv[%d:%d]",
			g.plan.Rank*len(send), (g.plan.Rank+1)*len(send))
	}
	return g.ops.Allgather(send, own, recv)
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
	if root < 0 || root >= g.plan.Size {
		return nil, argument("broadcast: root %d is not a rank; ranks are 0 to %d", root, g.plan.Size-1)
	}
	return g.ops.Broadcast(buf, root)
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier() error { return g.wait(g.startBarrier()) }

// StartBarrier begins a Barrier.
func (g *Group) StartBarrier() (*Work, error) { return g.posted(g.startBarrier()) }

func (g *Group) startBarrier() (*Work, error) { return g.ops.Barrier() }

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
		w.LeaveToAgents()
	}
	return w, err
}

// Reserve returns a place for the result of an Allgather of shards of so many bytes, or nil where ranks share no memory
// for it, or too little. All ranks of the group reserve the same in the same order, and either all of them or none
// gather into the reserved place. They do so as they gather into memory of their own.
func (g *Group) Reserve(shard int) *Output { return g.ops.Reserve(shard) }

// Waited returns how long the operations of a class that are done, and well, have waited for what, in all.
func (g *Group) Waited(c overlap.Class) overlap.Account { return g.ops.Waited(c) }

// Multicast reports whether multicast was to reach all ranks when they joined, which all of them know
// alike. It does not change; Info says how Allgathers travel now.
func (g *Group) Multicast() bool { return g.monitor.Multicast() }

// Info returns what the group is now.
func (g *Group) Info() monitor.Info { return g.monitor.Info() }

// Stats returns the counters.
func (g *Group) Stats() monitor.Stats { return g.monitor.Stats() }

// Waiting returns which operations do not move, as of a second ago at most, and for how long they have not.
func (g *Group) Waiting() []monitor.Waiting { return g.monitor.Waiting() }

// Awaited returns which ranks were waited for, and for what, since Join.
func (g *Group) Awaited() []monitor.Awaited { return g.monitor.Awaited() }

// Live returns what the group is and does now.
func (g *Group) Live() monitor.Live { return g.monitor.Live() }
