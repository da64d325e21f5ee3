package collnet

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// Group is a group that this rank has joined. Close it on every rank.
type Group struct{ group *group.Group }

// Rank returns this rank's number.
func (g *Group) Rank() int { return g.group.Rank() }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.group.Size() }

// Allgather gives every rank the shards of all ranks, in rank order. send is this rank's shard of N
// bytes, recv takes Size()*N. send may be recv's own slot, recv[Rank()*N:(Rank()+1)*N]; otherwise
// they must not overlap.
func (g *Group) Allgather(ctx context.Context, send, recv []byte) error {
	return run(ctx, func() (*group.Work, error) { return g.group.StartAllgather(send, recv) })
}

// StartAllgather begins an Allgather and returns while it goes on.
func (g *Group) StartAllgather(send, recv []byte) (*Work, error) {
	return begun(g.group.StartAllgather(send, recv))
}

// Broadcast copies root's buf to every other rank's, which has the same length.
func (g *Group) Broadcast(ctx context.Context, buf []byte, root int) error {
	return run(ctx, func() (*group.Work, error) { return g.group.StartBroadcast(buf, root) })
}

// StartBroadcast begins a Broadcast and returns while it goes on.
func (g *Group) StartBroadcast(buf []byte, root int) (*Work, error) {
	return begun(g.group.StartBroadcast(buf, root))
}

// Memory is registered with a group until Release.
type Memory struct{ memory *group.Memory }

// Register has an RDMA device send the shards of Allgathers and Broadcasts directly from memory, without a copy, and
// lets the right neighbour's device read there the chunks of a result that it has lost. memory stays mapped until
// Release, as Go's heap does while it is referred to; a stack does not. A group that copies anyway, or with a device
// that cannot register the memory, takes the call all the same, and Info has a note with the reason.
func (g *Group) Register(memory []byte) (*Memory, error) {
	m, err := g.group.Register(memory)
	if err != nil {
		return nil, public(err)
	}
	return &Memory{m}, nil
}

// Release takes memory from the device. No operation that uses it is in flight. Calling it again does nothing.
func (m *Memory) Release() error { return public(m.memory.Release()) }

// Barrier returns when all ranks have called it.
func (g *Group) Barrier(ctx context.Context) error { return run(ctx, g.group.StartBarrier) }

// StartBarrier begins a Barrier and returns while it goes on.
func (g *Group) StartBarrier() (*Work, error) { return begun(g.group.StartBarrier()) }

// ReduceScatter gives every rank the reduction of all ranks' shards for it. send holds Size()
// shards of equal length, in the order of the ranks that they are for; recv takes one. recv may be
// this rank's shard of send; otherwise they must not overlap. The contributions of others are
// summed in rank order and this rank's own last (16- and 8-bit floats: all in rank order), so the
// same inputs give the same bits; but not where FromEnv takes MCAST_SWITCH_MODE=fast from the
// environment, with which a switch sums floats in the order in which they come.
func (g *Group) ReduceScatter(ctx context.Context, send, recv []byte, r Reduction) error {
	t, op, err := r.check("reduce-scatter")
	if err != nil {
		return err
	}
	return run(ctx, func() (*group.Work, error) { return g.group.StartReduceScatter(send, recv, t, op, r.Factor) })
}

// StartReduceScatter begins a ReduceScatter and returns while it goes on.
func (g *Group) StartReduceScatter(send, recv []byte, r Reduction) (*Work, error) {
	t, op, err := r.check("reduce-scatter")
	if err != nil {
		return nil, err
	}
	return begun(g.group.StartReduceScatter(send, recv, t, op, r.Factor))
}

// Reduce gives root the reduction of all ranks' send. There recv is as long as send, and may be the
// same memory; otherwise they must not overlap. The other ranks' recv is not looked at. It sums as
// ReduceScatter does.
func (g *Group) Reduce(ctx context.Context, send, recv []byte, r Reduction, root int) error {
	t, op, err := r.check("reduce")
	if err != nil {
		return err
	}
	return run(ctx, func() (*group.Work, error) { return g.group.StartReduce(send, recv, t, op, r.Factor, root) })
}

// StartReduce begins a Reduce and returns while it goes on.
func (g *Group) StartReduce(send, recv []byte, r Reduction, root int) (*Work, error) {
	t, op, err := r.check("reduce")
	if err != nil {
		return nil, err
	}
	return begun(g.group.StartReduce(send, recv, t, op, r.Factor, root))
}

// Allreduce gives every rank the reduction of all ranks' send. recv is as long as send, and may be
// the same memory; otherwise they must not overlap. All ranks get the same bits, and the same
// inputs give the same bits, with the exception that ReduceScatter names.
func (g *Group) Allreduce(ctx context.Context, send, recv []byte, r Reduction) error {
	t, op, err := r.check("allreduce")
	if err != nil {
		return err
	}
	return run(ctx, func() (*group.Work, error) { return g.group.StartAllreduce(send, recv, t, op, r.Factor) })
}

// StartAllreduce begins an Allreduce and returns while it goes on.
func (g *Group) StartAllreduce(send, recv []byte, r Reduction) (*Work, error) {
	t, op, err := r.check("allreduce")
	if err != nil {
		return nil, err
	}
	return begun(g.group.StartAllreduce(send, recv, t, op, r.Factor))
}

// Close leaves the group. It waits until all ranks close, since others may still need this one,
// until one of them dies, or until ctx ends; then ranks that still use the group get a *RankError.
// With operations of this rank in flight, which then fail, it does not wait. The error says what
// could not be freed, or that not all ranks closed in time (ctx's error); the group is gone either
// way. Closing again returns the same.
func (g *Group) Close(ctx context.Context) error { return public(g.group.CloseUntil(ctx)) }

// Abort ends the group on all ranks at once: operations fail with a *RankError that names this rank
// and gives the reason. It takes seconds at most. The error says what could not be freed.
func (g *Group) Abort(reason string) error { return public(g.group.Abort(reason)) }
