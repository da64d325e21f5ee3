package group

import (
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// NCCL cuts an Allgather or Reduce-Scatter into parts, which it calls windows, without regard to
// ranks, and has several in flight. A part that covers everything is the operation itself. In any
// other part, the bytes in the slot of one rank are a Broadcast from that rank, or a Reduce to it;
// a part that straddles slots is several of these, posted together. A part of length 0 is done at
// once.

// part is bytes [offset, offset+len(buf)) of the P shards of an Allgather's
// result or a Reduce-Scatter's input.
type part struct {
	buf           []byte
	shard, offset int
}

// in returns what lies in a rank's slot.
func (p *part) in(rank int) []byte {
	from := min(max(rank*p.shard-p.offset, 0), len(p.buf))
	to := min(max((rank+1)*p.shard-p.offset, 0), len(p.buf))
	return p.buf[from:to:to]
}

// ranks returns the ranks with slots that the part touches: from first up to end.
func (p *part) ranks() (first, end int) {
	if len(p.buf) == 0 {
		return 0, 0
	}
	return p.offset / p.shard, (p.offset+len(p.buf)-1)/p.shard + 1
}

// whole reports whether there is nothing outside the part.
func (p *part) whole(ranks int) bool { return len(p.buf) == p.shard*ranks }

// check returns an error if a part is wrong, or the buffer for this rank's share. The error calls
// that buffer name. Lengths and the offset must be multiples of an element's size.
func (p *part) check(g *Group, call, name string, buf []byte, size int) error {
	switch ranks := g.plan.Size; {
	case g.plan.TwoLevel():
		return argument("%s: not where the ranks of a host work together; join with MCAST_NODES=off", call)
	case p.shard < 0 || p.shard > maxShard:
		return argument("%s: shard of %d bytes; allowed are 0 to %d", call, p.shard, maxShard)
	case p.offset < 0 || p.offset > p.shard*ranks-len(p.buf):
		return argument("%s: window of %d bytes at %d does not lie within %d ranks' shards of %d bytes",
			call, len(p.buf), p.offset, ranks, p.shard)
	case p.shard%size != 0 || p.offset%size != 0 || len(p.buf)%size != 0:
		return argument("%s: shards of %d bytes and a window of %d bytes at %d; all must be multiples of %d, the size of "+
			"an element",
			call, p.shard, len(p.buf), p.offset, size)
	}
	own := p.in(g.plan.Rank)
	switch {
	case len(buf) != len(own):
		return argument("%s: %s has %d bytes; of this rank's shard %d bytes lie in the window", call, name, len(buf),
			len(own))
	case engine.Overlaps(buf, p.buf) && !engine.SameMemory(buf, own):
		return argument("%s: %s overlaps the window; want another buffer, or this rank's own part of the window", call, name)
	}
	return nil
}

// maxShard is more than memory holds, and the shards of all ranks can be counted.
const maxShard = 1 << 47

// AllgatherPart is an Allgather of shards of shard bytes that delivers only bytes [offset, offset+len(buf)) of the
// result, into buf. send is the part of this rank's shard in that range; it may already be in its place in buf, and is
// empty if the range holds nothing of the shard. All ranks give the same shard, offset and length.
func (g *Group) AllgatherPart(send, buf []byte, shard, offset int) error {
	return g.wait(g.startAllgatherPart(send, buf, shard, offset))
}

// StartAllgatherPart begins an AllgatherPart.
func (g *Group) StartAllgatherPart(send, buf []byte, shard, offset int) (*Work, error) {
	return g.posted(g.startAllgatherPart(send, buf, shard, offset))
}

func (g *Group) startAllgatherPart(send, buf []byte, shard, offset int) (*Work, error) {
	p := part{buf, shard, offset}
	if err := p.check(g, "allgather window", "send", send, 1); err != nil {
		return nil, err
	}
	if p.whole(g.plan.Size) {
		return g.startAllgather(send, buf)
	}
	first, end := p.ranks()
	ops := make([]engine.GatherOp, 0, end-first)
	for r := first; r < end; r++ {
		o := engine.GatherOp{Recv: p.in(r), Whole: shard * g.plan.Size}
		o.Op = multicast.Op{Collective: wire.Broadcast, Root: r, Bytes: len(o.Recv)}
		if r == g.plan.Rank {
			o.Send = send
		}
		ops = append(ops, o)
	}
	return g.ops.AllgatherParts(ops, len(send))
}

// ReduceScatterPart is a Reduce-Scatter of shards of shard bytes with only bytes [offset,
// offset+len(buf)) of the input, in buf. recv takes the part of this rank's result in that range;
// it may be that piece of buf, and is empty if the range holds nothing of the result. All ranks
// give the same shard, offset and length, which are multiples of an element's size.
func (g *Group) ReduceScatterPart(
	buf, recv []byte, shard, offset int, t reduce.Type, op reduce.Op, factor float64,
) error {
	return g.wait(g.startReduceScatterPart(buf, recv, shard, offset, t, op, factor))
}

// StartReduceScatterPart begins a ReduceScatterPart.
func (g *Group) StartReduceScatterPart(
	buf, recv []byte, shard, offset int, t reduce.Type, op reduce.Op, factor float64,
) (*Work, error) {
	return g.posted(g.startReduceScatterPart(buf, recv, shard, offset, t, op, factor))
}

func (g *Group) startReduceScatterPart(
	buf, recv []byte, shard, offset int, t reduce.Type, op reduce.Op, factor float64,
) (*Work, error) {
	if err := checkReduction("reduce-scatter window", t, op); err != nil {
		return nil, err
	}
	p := part{buf, shard, offset}
	if err := p.check(g, "reduce-scatter window", "recv", recv, t.Size()); err != nil {
		return nil, err
	}
	if p.whole(g.plan.Size) {
		return g.startReduceScatter(buf, recv, t, op, factor)
	}
	first, end := p.ranks()
	ops := make([]engine.ReduceOp, 0, end-first)
	for r := first; r < end; r++ {
		o := direct.Op{Op: collective.Op{To: wire.ToRank(r), Type: t, Reduction: op, Factor: factor}, Send: p.in(r)}
		o.Count = len(o.Send) / t.Size()
		if r == g.plan.Rank {
			o.Recv = recv
		}
		ops = append(ops, engine.ReduceOp{Op: o})
	}
	return g.ops.ReduceScatterParts(ops, len(recv))
}
