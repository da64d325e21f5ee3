package group

import (
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// NCCL cuts an Allgather or Reduce-Scatter into windows without regard to
// ranks, and has several in flight. One that is everything is the operation itself. Of any other,
// what lies in the slot of one rank is a Broadcast from that rank, or a Reduce to it; those that
// straddle slots are several of these, posted together. A window of length 0 is done at once.

// window is bytes [offset, offset+len(buf)) of the P shards of an Allgather's
// result or a Reduce-Scatter's input.
type window struct {
	buf           []byte
	shard, offset int
}

// in returns the part that lies in a rank's slot.
func (w *window) in(rank int) []byte {
	from := min(max(rank*w.shard-w.offset, 0), len(w.buf))
	to := min(max((rank+1)*w.shard-w.offset, 0), len(w.buf))
	return w.buf[from:to:to]
}

// ranks returns in whose slots something of the window lies: from first up to end.
func (w *window) ranks() (first, end int) {
	if len(w.buf) == 0 {
		return 0, 0
	}
	return w.offset / w.shard, (w.offset+len(w.buf)-1)/w.shard + 1
}

// whole reports whether there is nothing outside the window.
func (w *window) whole(ranks int) bool { return len(w.buf) == w.shard*ranks }

// check reports what is wrong with a window, and with the buffer, called name, that
// is for this rank's part of it. Everything must be in elements of a size.
func (w *window) check(g *Group, call, name string, buf []byte, size int) error {
	switch ranks := g.plan.size; {
	case w.shard < 0 || w.shard > maxShard:
		return argument("%s: shard of %d bytes; allowed are 0 to %d", call, w.shard, maxShard)
	case w.offset < 0 || w.offset > w.shard*ranks-len(w.buf):
		return argument("%s: window of %d bytes at %d does not lie within %d ranks' shards of %d bytes",
			call, len(w.buf), w.offset, ranks, w.shard)
	case w.shard%size != 0 || w.offset%size != 0 || len(w.buf)%size != 0:
		return argument("%s: shards of %d bytes and a window of %d bytes at %d; all must be multiples of %d, the size of an element",
			call, w.shard, len(w.buf), w.offset, size)
	}
	own := w.in(g.plan.rank)
	switch {
	case len(buf) != len(own):
		return argument("%s: %s has %d bytes; of this rank's shard %d bytes lie in the window", call, name, len(buf), len(own))
	case overlaps(buf, w.buf) && !engine.SameMemory(buf, own):
		return argument("%s: %s overlaps the window without being this rank's part of it", call, name)
	}
	return nil
}

// maxShard is more than memory holds, and the shards of all ranks can be counted.
const maxShard = 1 << 47

// AllgatherWindow is an Allgather of shards of a length, in bytes, of whose result only
// bytes [offset, offset+len(window)) are wanted: they get into window. send is the part of
// this rank's shard that lies in the window; it may already be in its place there, and is empty if there is none.
// All ranks give the same shard, offset and length.
func (g *Group) AllgatherWindow(send, window []byte, shard, offset int) error {
	return g.wait(g.startAllgatherWindow(send, window, shard, offset))
}

// StartAllgatherWindow begins an AllgatherWindow.
func (g *Group) StartAllgatherWindow(send, window []byte, shard, offset int) (*Work, error) {
	return g.posted(g.startAllgatherWindow(send, window, shard, offset))
}

func (g *Group) startAllgatherWindow(send, buf []byte, shard, offset int) (*Work, error) {
	w := window{buf, shard, offset}
	if err := w.check(g, "allgather window", "send", send, 1); err != nil {
		return nil, err
	}
	if w.whole(g.plan.size) {
		return g.startAllgather(send, buf)
	}
	first, end := w.ranks()
	ops := make([]engine.GatherOp, 0, end-first)
	for r := first; r < end; r++ {
		o := engine.GatherOp{Recv: w.in(r), Whole: shard * g.plan.size, Yield: g.yielding(wire.Broadcast)}
		o.Op = multicast.Op{Collective: wire.Broadcast, Root: r, Bytes: len(o.Recv)}
		if r == g.plan.rank {
			o.Send = send
		}
		ops = append(ops, o)
	}
	return g.submitParts(overlap.Gather, &g.tally.gatherBytes, send, len(ops), func(after func()) ([]*engine.Work, error) {
		return g.gather.SubmitAll(ops, after)
	})
}

// ReduceScatterWindow is a Reduce-Scatter of shards of a length, in bytes, of which
// only bytes [offset, offset+len(window)) of the input are there. recv takes the part of
// this rank's result that lies in the window; it may be that part of the window, and is empty if there is
// none. All ranks give the same shard, offset and length, which are multiples of an element's size.
func (g *Group) ReduceScatterWindow(window, recv []byte, shard, offset int, t reduce.Type, op reduce.Op, factor float64) error {
	return g.wait(g.startReduceScatterWindow(window, recv, shard, offset, t, op, factor))
}

// StartReduceScatterWindow begins a ReduceScatterWindow.
func (g *Group) StartReduceScatterWindow(window, recv []byte, shard, offset int, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	return g.posted(g.startReduceScatterWindow(window, recv, shard, offset, t, op, factor))
}

func (g *Group) startReduceScatterWindow(buf, recv []byte, shard, offset int, t reduce.Type, op reduce.Op, factor float64) (*Work, error) {
	if err := checkReduction("reduce-scatter window", t, op); err != nil {
		return nil, err
	}
	w := window{buf, shard, offset}
	if err := w.check(g, "reduce-scatter window", "recv", recv, t.Size()); err != nil {
		return nil, err
	}
	if w.whole(g.plan.size) {
		return g.startReduceScatter(buf, recv, t, op, factor)
	}
	first, end := w.ranks()
	ops := make([]direct.Op, 0, end-first)
	for r := first; r < end; r++ {
		o := direct.Op{Op: collective.Op{To: wire.ToRank(r), Type: t, Reduction: op, Factor: factor}, Send: w.in(r)}
		o.Count = len(o.Send) / t.Size()
		if r == g.plan.rank {
			o.Recv = recv
		}
		ops = append(ops, o)
	}
	return g.submitParts(overlap.Reduce, &g.tally.reduceBytes, recv, len(ops), func(after func()) ([]*engine.Work, error) {
		return g.reduce.SubmitAll(ops, after)
	})
}

// submitParts hands the parts of a window to a lane, all of them or, with an
// error, none, and counts what of it is this rank's own.
func (g *Group) submitParts(
	c overlap.Class, tally *atomic.Uint64, own []byte, parts int, submit func(after func()) ([]*engine.Work, error),
) (*Work, error) {
	g.posting.RLock()
	defer g.posting.RUnlock()
	if g.leaving {
		return nil, g.closed()
	}
	joint := engine.NewJoint(parts, func(err error) error {
		g.ended(c)
		return err
	})
	joint.Book(&g.waited[c])
	g.begun(c)
	works, err := submit(joint.Ended)
	if err != nil {
		g.ended(c)
		return nil, err
	}
	g.checkDeparted(c)
	tally.Add(uint64(len(own)))
	joint.Posted(works)
	return &Work{Work: joint.Work, lane: g.lanes[c]}, nil
}
