package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// A rank that closes a group tells all how many operations it has posted, and stays until all ranks
// close: others may need it for operations that it has completed itself. A rank that has posted
// more operations waits for something that will never come, and fails at once.

// onLane says what goes over each lane.
var onLane = [...]string{
	overlap.Gather: "an Allgather, Broadcast, Barrier or Allreduce",
	overlap.Reduce: "a Reduce-Scatter, Reduce or Allreduce",
}

// leaving is how a rank leaves a group, and who else does.
type leaving struct {
	departed  [len(onLane)]atomic.Pointer[departure] // who leaves, having posted least
	once      sync.Once
	done      chan struct{} // closed when Close is done
	waitEnded chan error    // of a ctx that ends the wait of Close
	err       error         // of Close
}

// departure says that a rank has closed the group after so many operations of a lane.
type departure struct {
	rank   int
	posted uint64
}

// left takes that a rank leaves.
func (g *Group) left(rank int, posted mesh.Posted) {
	g.mu.Lock()
	for lane := range onLane {
		if known := g.leaving.departed[lane].Load(); known == nil || posted[lane] < known.posted {
			g.leaving.departed[lane].Store(&departure{rank, posted[lane]})
		}
	}
	ops := g.ops
	g.mu.Unlock()
	if ops != nil {
		g.checkDeparted(overlap.Gather)
		g.checkDeparted(overlap.Reduce)
	}
}

// checkDeparted ends the group if a rank that leaves will never post what this one has posted.
func (g *Group) checkDeparted(lane overlap.Class) {
	d := g.leaving.departed[lane].Load()
	if d == nil {
		return
	}
	if g.ops.Posts()[lane] > d.posted {
		g.mesh.Report(&Fault{Kind: Left, Rank: d.rank, Text: fmt.Sprintf(
			"while %s was in flight on rank %d", onLane[lane], g.plan.Rank)})
	}
}

// closed is why operations end once this rank has closed the group.
func (g *Group) closed() *Fault { return &Fault{Kind: Closed, Rank: g.plan.Rank} }

// Close leaves the group. It waits until all ranks close, as long as they live, since others may
// still need this one; it does not wait with operations in flight, which fail, nor after a
// failure. It returns what could not be freed, or nil; the group is gone either way.
//
// A rank that posts an operation that this one has not posted gets an error that says so.
func (g *Group) Close() error { return g.CloseUntil(context.Background()) }

// CloseWithin is Close for programs with ranks that leave at different times: it waits for the
// others at most that long. A rank that still uses the group then gets an error.
func (g *Group) CloseWithin(wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err := g.CloseUntil(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("close: not all ranks closed the group within %v: %w", wait, err)
	}
	return err
}

// Abort ends the group on all ranks at once: their operations fail with an error that names this
// rank and gives the reason, such as "its script ended with ValueError". A Close that waits, ends.
func (g *Group) Abort(reason string) error {
	g.mesh.Report(&Fault{Kind: Aborted, Rank: g.plan.Rank, Text: reason})
	return g.Close()
}

// CloseUntil is Close that waits for the others until ctx ends at most. A rank that still uses the group then gets an
// error. If several calls close the group, the first ctx to end ends the wait of all of them, and all return the same.
func (g *Group) CloseUntil(ctx context.Context) error {
	g.leaving.once.Do(func() {
		go func() {
			defer close(g.leaving.done)
			err := g.leave()
			g.leaving.err = errors.Join(err, g.release())
		}()
	})
	select {
	case <-g.leaving.done:
	case <-ctx.Done():
		select {
		case g.leaving.waitEnded <- ctx.Err():
		default: // another call's ctx has ended as well
		}
		<-g.leaving.done
	}
	return g.leaving.err
}

// leave waits until all ranks leave, or, with its error, until the ctx of a CloseUntil ends.
func (g *Group) leave() error {
	if err := g.settle(); err != nil {
		g.fail(g.closed())
		g.mesh.Report(&Fault{Kind: Left, Rank: g.plan.Rank, Text: "with operations of its own in flight"})
		return err
	}
	idle := g.ops.Shut(g.closed())
	idle = g.messages.Shut(g.closed()) && idle
	switch {
	case g.mesh.Err() != nil:
		return nil // operations report it
	case !idle:
		g.fail(g.closed())
		g.mesh.Report(&Fault{Kind: Left, Rank: g.plan.Rank, Text: "with operations of its own in flight"})
		return nil
	}
	g.mesh.Leave(g.ops.Posts())
	g.messages.engine.Leave()
	long := time.NewTimer(g.plan.Settings.Timeout)
	defer long.Stop()
	for {
		select {
		case <-g.mesh.AllLeave():
			return nil
		case <-g.life.Done():
			return nil
		case err := <-g.leaving.waitEnded:
			g.fail(g.closed())
			g.mesh.Report(&Fault{Kind: Left, Rank: g.plan.Rank, Text: "before all ranks did"})
			return err
		case <-long.C:
			g.log.Warn("closing the group waits for ranks that are alive and have not closed it: close it there, or end them",
				"missing", team.RankList(g.mesh.Staying()), "waited", g.plan.Settings.Timeout)
		}
	}
}

// release frees what a group held that this rank has left.
func (g *Group) release() error {
	g.monitor.Withdraw() // from now on nobody reads the memory freed below
	g.mesh.Close()
	if f := g.mesh.Err(); f != nil {
		g.fail(f) // the cause, in case the mesh has not called failed yet
	}
	g.fail(g.closed())
	g.end(g.closed())
	g.monitor.Wait()
	for _, l := range g.ops.Levels() {
		l.Stop()
	}
	g.messages.stop()
	g.peers.Close()
	err := errors.Join(g.unstage(), g.messages.engine.Close())
	for _, l := range slices.Backward(g.ops.Levels()) {
		err = errors.Join(err, l.Close())
	}
	if g.region != nil { // its fabrics are closed: nobody uses it
		err = errors.Join(err, g.region.Close())
	}
	return errors.Join(err, g.free(), g.ops.Close())
}
