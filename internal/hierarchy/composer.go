package hierarchy

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
)

// composer makes operations out of steps on the levels of a group. Before a method posts, the arguments were checked,
// and the caller has called lock or holds posting alone.
type composer interface {
	// lock keeps others from posting, as far as steps of one operation must follow each other. unlock lets them again.
	lock()
	unlock()
	// allgather is an Allgather. own is this rank's place in recv; send may be the same memory.
	allgather(send, own, recv []byte, p piece) (*Work, error)
	// allgatherInto is an Allgather into an Output. own is this rank's place there, and holds its shard already. When the
	// whole result is there, the ranks of the host gather claims. finish decides the error with which the operation ends.
	allgatherInto(own, recv []byte, claims engine.GatherOp, finish func(error) error) (*Work, error)
	broadcast(buf []byte, root int) (*Work, error)
	barrier() (*Work, error)
	// reduceScatter is a Reduce-Scatter. rest posts the steps that must go behind those of later segments, and is
	// called before more than forwardBehind more are begun.
	reduceScatter(send, recv []byte, o collective.Op, p piece) (rest func() *Work, err error)
	reduce(send, recv []byte, o collective.Op, root int) (*Work, error)
	// stepsOfAllreduce returns how many steps an Allreduce posts to the lanes of both classes, for elements of a size.
	// Ahead of its segments, ranks exchange which call they made.
	stepsOfAllreduce(segments []segment, size int) (gather, reduce steps)
	// wakeAgents has agents drive what a wait for an Allreduce does not: that drives one lane after the other.
	wakeAgents()
	// posts returns how many operations this rank has posted.
	posts() mesh.Posted
	// counts returns how many operations have ended, as callers see them. column is what its lanes have counted.
	counts(column Ended) Counts
}

// piece says how an operation belongs to a larger call. The zero value is a call of its own.
type piece struct {
	// follows must be done before; nil: nothing must.
	follows *engine.Work
	// segment says that the operation is one of several segments. There is room for all of them; it is not cut further.
	segment bool
	// done is called at its end; nil: nothing is.
	done func()
}

// steps are how many steps something has on the level that the network joins, and on the one within a host.
type steps struct{ across, within int }

func (s steps) times(n int) steps  { return steps{s.across * n, s.within * n} }
func (s steps) plus(o steps) steps { return steps{s.across + o.across, s.within + o.within} }
