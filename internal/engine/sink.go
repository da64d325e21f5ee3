package engine

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Expect implements fabric.Sink.
func (g *Gather) Expect(next *wire.Data) fabric.Expected {
	e, ok := g.comm.Expect(next)
	if !ok {
		return fabric.Expected{}
	}
	return fabric.Expected{
		Seq: e.Seq, Root: uint16(e.Root), PSN: uint32(e.PSN),
		Dst: g.ops[e.Seq%maxTracked].Recv[e.Offset : e.Offset+e.Bytes],
	}
}

// Accept implements fabric.Sink.
func (g *Gather) Accept(h *wire.Data, n int) (dst []byte, verdict fabric.Verdict, stream bool) {
	if g.comm.Hold(h) {
		return nil, fabric.Hold, false
	}
	p, ok := g.comm.Place(g.now, h, n)
	if !ok {
		return nil, fabric.Drop, false
	}
	if p.Arena {
		return g.arena(p.Second)[p.Offset : p.Offset+n : p.Offset+n], fabric.Take, false
	}
	o := &g.ops[p.Seq%maxTracked]
	return o.Recv[p.Offset : p.Offset+n : p.Offset+n], fabric.Take, o.bulk()
}

// Received implements fabric.Sink.
func (g *Gather) Received(h *wire.Data) {
	g.received(&g.ops[h.Seq%maxTracked])
	g.comm.Received(g.now, h)
	g.carried += uint64(g.cfg.Core.Chunk)
	g.finish()
}

// Control implements fabric.Sink.
func (g *Gather) Control(from int, m *wire.Control) {
	if multicast.Guesses(m) {
		g.comm.Unsent(g.fab.Unsent())
	}
	g.comm.Control(g.now, from, m)
	g.finish()
}

// ReadEnded implements fabric.Sink.
func (g *Gather) ReadEnded(r *wire.Read, well bool) {
	g.comm.ReadEnded(g.now, r, well)
	g.finish()
}

// Broken implements fabric.Sink. For the own rank it means that the fabric is broken, not a connection.
func (g *Gather) Broken(rank int, err error) {
	if rank == g.cfg.Core.Rank {
		g.cfg.Broken(-1, err)
		return
	}
	g.cfg.Broken(rank, err)
}
