package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// takeCall takes a message that says what another rank has called. What comes before Post waits for it.
func (c *Comm) takeCall(p *op, from int, m *wire.Control) {
	switch {
	case p.state == early && len(p.calls.early) <= c.topo.Rounds(): // one for each round, and one from the left
		p.calls.early = append(p.calls.early, callOf{from, *m})
	case p.state == early:
		c.stats.Dropped++
	case m.Kind == wire.Compare:
		c.compare(p, from, m)
	default:
		c.ready(p, from, m)
	}
}

// ready takes a message of the barrier of an operation that was posted.
func (c *Comm) ready(p *op, from int, m *wire.Control) {
	if int(m.Round) >= c.topo.Rounds() || from != c.topo.From(int(m.Round)) {
		c.stats.Dropped++
		return
	}
	if !c.sameCall(p, from, m) {
		return
	}
	if !p.mode.barrier { // Sync on one side only, or different settings
		c.disagreeHow(p, from, "without a barrier", "with one")
		return
	}
	p.barrier.take(int(m.Round), m.Count == 1)
	if p.barrier.entered {
		c.waitedFor[from].Barrier += p.waited(c.now, c.freed)
	}
	p.moved = c.now
	c.disseminate(p)
}
