package group

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// take returns the Output whose memory recv is, for an Allgather; nil if recv lies elsewhere.
func (o *outputs) take(recv []byte) (*Output, error) {
	if o == nil || !overlaps(recv, o.ring) {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.ready {
		if len(recv) == p.bytes && engine.SameMemory(recv, o.ring[p.from:]) {
			if p.used || p.released {
				return nil, argument("allgather: recv is an output that was gathered into or released before: reserve one for each Allgather")
			}
			p.used, p.busy = true, true
			return p, nil
		}
	}
	return nil, argument("allgather: recv lies among the outputs that ranks share, and is none that was reserved")
}

// ended says that no Allgather uses the place any more. If it was refused, another may.
func (p *Output) ended(refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.used = false, !refused
	p.giveBack()
}

// claim is what a rank says of an output when its part of the result is there: its number, the length
// and where it begins, u64 each, and a hash of what was reserved so far. Ranks of a host must agree.
type claim [32]byte

func (p *Output) claim() (c claim) {
	for i, v := range []uint64{p.number, uint64(p.bytes), uint64(p.from), p.order} {
		binary.BigEndian.PutUint64(c[8*i:], v)
	}
	return c
}

func (c *claim) String() string {
	return fmt.Sprintf("result %d of those reserved, %d bytes", binary.BigEndian.Uint64(c[0:]), binary.BigEndian.Uint64(c[8:]))
}

// gatherOutput is an Allgather into an Output. On two levels each column gathers into it; on one, the
// own shard is all that this rank has to write. Once that is done, the ranks of the host gather their
// claims: whoever has them all knows that all of the result is there, and that the others mean the
// same. g.posting is held.
func (g *Group) gatherOutput(send, recv []byte, p *Output) (w *Work, err error) {
	n, mine := len(send), p.claim()
	own := recv[g.agreed.rank*n:][:n]
	if !engine.SameMemory(send, own) {
		copy(own, send)
	}
	all := make([]byte, p.members.size()*len(mine))
	claims := engine.GatherOp{Op: multicast.Op{Collective: wire.Allgather, Bytes: len(mine)}, Send: mine[:], Recv: all}
	finish := func(err error) error {
		if err == nil {
			err = g.compareClaims(p, mine, all)
		}
		if err == nil {
			p.gathered.Add(1)
		}
		p.ended(false)
		return err
	}
	if g.node != nil {
		w, err = g.nodeGatherOutput(own, recv, claims, finish)
	} else {
		w, err = g.postJoint(claims, n, finish)
	}
	if err != nil {
		p.ended(true)
	}
	return w, err
}

// nodeGatherOutput is gatherOutput on two levels.
func (g *Group) nodeGatherOutput(own, recv []byte, claims engine.GatherOp, finish func(error) error) (*Work, error) {
	a, n := g.agreed, len(own)
	segments := a.gatherGrain(false).cut(n, 1)
	posted := steps{a.gatherings(len(segments)).across, 1}
	if a.node.size() > a.columns {
		posted.within = 2
	}
	c, err := g.compose(outline{class: overlap.Gather, call: wire.Call{Collective: wire.Allgather, Bytes: uint64(n)}, steps: posted, finish: finish})
	if err != nil {
		return nil, err
	}
	rows := c.gathers(true, a.rowsOfColumn(segments, own, recv, nil)...)
	var written *engine.Work
	if posted.within > 1 {
		// Columns send what the ranks that they stand for have written.
		barrier := engine.GatherOp{Op: multicast.Op{Collective: wire.Barrier}, Send: nonNil(nil)}
		written = c.before(last(c.gathers(false, barrier)), true)
	}
	surplus := c.gathers(true, a.surplusOfColumn(segments, own, recv, written)...)
	claims.After = c.before(allOf(slices.Concat(rows, surplus)), false)
	c.gathers(false, claims)
	return c.work(n, len(segments)), nil
}

// allOf is done once all of some steps are, in whatever order they end; nil if they were refused.
func allOf(steps []*engine.Work) *engine.Work {
	if len(steps) == 0 {
		return nil
	}
	joint := engine.NewJoint(len(steps), func(err error) error { return err })
	for _, w := range steps {
		w.OnDone(func(error) { joint.Ended() })
	}
	joint.Posted(steps)
	return joint.Work
}

// compareClaims looks at what the ranks of the host say of an output. If another's differs, the group
// fails: somebody has written where others read.
func (g *Group) compareClaims(p *Output, mine claim, all []byte) error {
	for i := range p.members.ranks {
		if theirs := claim(all[i*len(mine):]); theirs != mine {
			d := &collective.Disagreement{
				Ranks: [2]int{g.agreed.rank, p.members.rank(i)}, What: [2]string{"gathered into " + mine.String(), "gathered into " + theirs.String()},
			}
			f := &Fault{Kind: Mismatch, Rank: g.agreed.rank, Between: d, Text: fmt.Sprintf(
				"ranks disagree: rank %d has %s, rank %d %s", d.Ranks[0], d.What[0], d.Ranks[1], d.What[1])}
			g.mesh.Report(f)
			return f
		}
	}
	return nil
}

// postJoint is post of an operation whose end finish decides on.
func (g *Group) postJoint(o engine.GatherOp, own int, finish func(error) error) (*Work, error) {
	joint := engine.NewJoint(1, finish)
	w, err := g.post(o, own, joint.Ended)
	if err != nil {
		return nil, err
	}
	joint.Posted([]*engine.Work{w.Work})
	return &Work{Work: joint.Work, lane: w.lane}, nil
}
