package hierarchy

import (
	"encoding/binary"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// take returns the Output that has its memory at recv, for an Allgather; nil if recv lies elsewhere.
func (o *outputs) take(recv []byte) (*Output, error) {
	if o == nil || !engine.Overlaps(recv, o.ring) {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.ready {
		if len(recv) == p.bytes && engine.SameMemory(recv, o.ring[p.From:]) {
			if p.used || p.released {
				return nil,
					team.Argument("allgather: recv is an output that was gathered into or released before: reserve one for each " +
						"Allgather")
			}
			p.used, p.busy = true, true
			return p, nil
		}
	}
	return nil, team.Argument("allgather: recv lies among the outputs that ranks share, and is none that was reserved")
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
	for i, v := range []uint64{p.Number, uint64(p.bytes), uint64(p.From), p.Order} {
		binary.BigEndian.PutUint64(c[8*i:], v)
	}
	return c
}

func (c *claim) String() string {
	return fmt.Sprintf("reserved result %d, %d bytes", binary.BigEndian.Uint64(c[0:]), binary.BigEndian.Uint64(c[8:]))
}

// gatherOutput is an Allgather into an Output; own is this rank's place there. On two levels each column gathers into
// it; on one, this rank only has to write its own shard. Once that is done, the ranks of the host gather their claims:
// a rank that has all of them knows that the whole result is there, and that the others use the same Output.
// o.posting is held.
func (o *Operations) gatherOutput(send, own, recv []byte, p *Output) (*Work, error) {
	if !engine.SameMemory(send, own) {
		copy(own, send)
	}
	mine := p.claim()
	all := make([]byte, p.members.Size()*len(mine))
	claims := engine.GatherOp{Op: multicast.Op{Collective: wire.Allgather, Bytes: len(mine)}, Send: mine[:], Recv: all}
	w, err := o.composer.allgatherInto(own, recv, claims, func(err error) error {
		if err == nil {
			err = o.compareClaims(p, mine, all)
		}
		if err == nil {
			p.gathered.Add(1)
		}
		p.ended(false)
		return err
	})
	if err != nil {
		p.ended(true)
	}
	return w, err
}

// compareClaims looks at what the ranks of the host say of an output. If another's differs, the group
// fails: somebody has written where others read.
func (o *Operations) compareClaims(p *Output, mine claim, all []byte) error {
	for i := range p.members.Ranks {
		if theirs := claim(all[i*len(mine):]); theirs != mine {
			d := &collective.Disagreement{
				Ranks: [2]int{o.plan.Rank, p.members.Rank(i)},
				What:  [2]string{"gathered into " + mine.String(), "gathered into " + theirs.String()},
			}
			f := &mesh.Fault{Kind: mesh.Mismatch, Rank: o.plan.Rank, Between: d, Text: fmt.Sprintf(
				"ranks disagree: rank %d has %s, rank %d %s", d.Ranks[0], d.What[0], d.Ranks[1], d.What[1])}
			o.report(f)
			return f
		}
	}
	return nil
}
