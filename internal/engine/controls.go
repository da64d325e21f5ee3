package engine

import (
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// delayed are the messages for one rank that found no room on its path. They keep their order. Messages for other ranks
// do not wait for them: a neighbour that is being repaired over a slow link must not hold up the credit that all the
// others send by.
type delayed struct {
	rank     int
	messages []wire.Control
}

// mostPasses bounds how often one round sends relayed chunks.
const mostPasses = 16

// send sends all that is ready, as far as the fabric has room.
func (g *Gather) send() (busy bool) {
	relayed := true // which makes room for more of the own shard
	for pass := 0; relayed && pass < mostPasses; pass++ {
		var sent bool
		busy = g.multicast() || busy
		sent, relayed = g.controls()
		busy = busy || sent
	}
	return busy
}

// controls sends messages, repairs and relayed chunks, and begins reads, as far as the fabric has room.
func (g *Gather) controls() (busy, relayed bool) {
	if g.comm.Silent() && len(g.delayed) == 0 { // as after most chunks
		return false, false
	}
	busy = g.retry()
	for {
		m, ok := g.comm.NextControl()
		if !ok {
			break
		}
		d := g.delayedFor(m.To)
		switch g.message = m.Control; {
		case d != nil:
			d.messages = append(d.messages, m.Control)
		case g.fab.Control(m.To, &g.message, nil):
			busy = true
		default:
			g.delayed = append(g.delayed, delayed{m.To, []wire.Control{m.Control}})
		}
		g.comm.PopControl()
	}
	busy = g.chunks(g.comm.NextRepair, g.comm.Repaired) || busy
	busy = g.reads() || busy
	relayed = g.chunks(g.comm.NextRelay, g.comm.Relayed)
	return busy || relayed, relayed
}

// reads begins to read what the left neighbour offers, as far as the fabric has room.
func (g *Gather) reads() (busy bool) {
	for g.comm.NextRead(&g.read) && g.fab.Read(&g.read) {
		g.comm.Reading(&g.read)
		busy = true
	}
	return busy
}

// offer offers chunks for the right neighbour to read, if they lie where it can. tried reports whether they do, sent
// whether the fabric had room.
func (g *Gather) offer(r *multicast.Repair) (tried, sent bool) {
	if r.Offer == 0 {
		return false, false
	}
	addr, key, ok := g.fab.Readable(g.holds(r, r.Span))
	if !ok {
		return false, false
	}
	g.message = r.OfferAt(addr, key)
	if !g.fab.Control(r.To, &g.message, nil) {
		return true, false
	}
	g.comm.Offered(r)
	return true, true
}

// chunks sends the chunks that next returns, as far as the fabric has room.
func (g *Gather) chunks(next func() (multicast.Repair, bool), sent func(*multicast.Repair)) (busy bool) {
	for r := &g.chunk; ; busy = true {
		var ok bool
		if *r, ok = next(); !ok || g.delayedFor(r.To) != nil {
			return busy
		}
		if tried, went := g.offer(r); went {
			continue
		} else if tried {
			return busy
		}
		g.message = r.Message
		if !g.fab.Control(r.To, &g.message, g.held(r)) {
			return busy
		}
		sent(r)
	}
}

// retry sends what was delayed, as far as there is room now.
func (g *Gather) retry() (busy bool) {
	for i := range g.delayed {
		d := &g.delayed[i]
		sent := 0
		for ; sent < len(d.messages); sent++ {
			if g.message = d.messages[sent]; !g.fab.Control(d.rank, &g.message, nil) {
				break
			}
		}
		busy = busy || sent > 0
		d.messages = slices.Delete(d.messages, 0, sent)
	}
	g.delayed = slices.DeleteFunc(g.delayed, func(d delayed) bool { return len(d.messages) == 0 })
	return busy
}

// delayedFor returns the delayed messages for a rank, or nil.
func (g *Gather) delayedFor(rank int) *delayed {
	for i := range g.delayed {
		if d := &g.delayed[i]; d.rank == rank {
			return d
		}
	}
	return nil
}
