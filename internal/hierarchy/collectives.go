package hierarchy

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// The collectives begin an operation whose arguments were checked. The buffers belong to it until it is done.

// Allgather gives every rank the shards of all in recv. own is this rank's place there; send may be the same memory.
func (o *Operations) Allgather(send, own, recv []byte) (*Work, error) {
	p, err := o.outputs.take(recv)
	if err != nil {
		return nil, err
	}
	o.composer.lock()
	defer o.composer.unlock()
	if p != nil {
		return o.gatherOutput(send, own, recv, p)
	}
	return o.composer.allgather(send, own, recv, piece{})
}

// Broadcast copies root's buf to every rank's.
func (o *Operations) Broadcast(buf []byte, root int) (*Work, error) {
	o.composer.lock()
	defer o.composer.unlock()
	return o.composer.broadcast(buf, root)
}

// Barrier is done when all ranks have begun it.
func (o *Operations) Barrier() (*Work, error) {
	o.composer.lock()
	defer o.composer.unlock()
	return o.composer.barrier()
}

// ReduceScatter gives every rank the reduction of all ranks' shard for it.
func (o *Operations) ReduceScatter(send, recv []byte, op collective.Op) (*Work, error) {
	o.composer.lock()
	defer o.composer.unlock()
	rest, err := o.composer.reduceScatter(send, recv, op, piece{})
	if err != nil {
		return nil, err
	}
	return rest(), nil
}

// Reduce gives root the reduction of all ranks' send; recv is empty at all others.
func (o *Operations) Reduce(send, recv []byte, op collective.Op, root int) (*Work, error) {
	o.composer.lock()
	defer o.composer.unlock()
	return o.composer.reduce(send, recv, op, root)
}

// AllgatherParts begins an Allgather of several Broadcasts, all of them or, with an error, none. own is what this rank
// contributes, in bytes. There is one level.
func (o *Operations) AllgatherParts(ops []engine.GatherOp, own int) (*Work, error) {
	return o.postParts(entry{class: overlap.Gather, kind: wire.Allgather, bytes: own, own: own}, len(ops),
		func(ended func()) ([]*engine.Work, error) { return o.column.Gather.SubmitAll(ops, ended) })
}

// ReduceScatterParts begins a Reduce-Scatter of several Reduces, as AllgatherParts does an Allgather. own is this
// rank's part of the result, in bytes.
func (o *Operations) ReduceScatterParts(ops []engine.ReduceOp, own int) (*Work, error) {
	return o.postParts(entry{class: overlap.Reduce, kind: wire.ReduceScatter, bytes: own, own: own}, len(ops),
		func(ended func()) ([]*engine.Work, error) { return o.column.Reduce.SubmitAll(ops, ended) })
}

func (o *Operations) postParts(e entry, parts int, submit func(ended func()) ([]*engine.Work, error)) (*Work, error) {
	o.posting.RLock()
	defer o.posting.RUnlock()
	return o.post(e, nil, func(ended func()) (*engine.Work, error) {
		joint := engine.NewJoint(parts, func(err error) error {
			ended()
			return err
		})
		works, err := submit(joint.Ended)
		if err != nil {
			return nil, err
		}
		joint.Posted(works)
		return joint.Work, nil
	})
}
