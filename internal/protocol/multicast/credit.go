package multicast

import (
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// credit is the flow control of a large or serial operation. The roots of a chain send one after another, so the chain
// is one stream of chunks: shard after shard. No root may send a chunk that is more than a window ahead of the last
// chunk that the slowest rank has taken off its queue. Each rank turns how far it has come in the stream into a limit
// for each root that this concerns, and tells its parent in that root's tree. The minimum travels on: feedback shrinks
// on its way to the root instead of imploding there (Gleam does this in network switches).
//
// Operations without a window use no credit. Limits never fall, and are at most most(l).
type credit struct {
	step  uint32 // chunks that a message covers, 1 to the window
	floor int    // what a root may have under way at the least, in chunks, at most the window

	// relay: this rank wants chunks relayed, or one below it in a tree does, as of the last look.
	relay    bool
	link     *link    // to its series, nil: it is not serial; where it is, taken and granted are not used
	taken    []int    // how far this rank has come in each chain, in chunks; never falls
	granted  []int    // of each chain, how many shards from its first on need no more from this rank
	child    []uint32 // limits that children have reported; never fall: see below
	reported []uint32 // for each shard, the limit that was passed on; never falls
}

// reset fills in what all ranks start from alike, so that no message is needed for it.
func (c *credit) reset(l *layout) {
	c.step, c.floor, c.link, c.relay = 0, 0, nil, false
	if l.mode.window == 0 {
		return
	}
	c.step, c.floor = creditStep(l.mode.window), l.mode.window
	if l.mode.chains.M == l.shards { // no two share a chain
		c.step = fineStep(l.mode.window)
		if l.mode.kind == serial { // it may have no more than a share, which is short
			c.step = max(fineStep(l.mode.share), uint32(l.mode.share/8))
		}
		c.floor = min(l.mode.window, 2*int(c.step))
	}
	c.taken = zeroed(c.taken, l.mode.chains.M)
	c.granted = zeroed(c.granted, l.mode.chains.M)
	c.child = zeroed(c.child, l.topo.AllChildren())
	c.reported = zeroed(c.reported, l.shards)
	for s := range l.shards {
		limit := uint32(c.limit(l, s))
		if l.mode.kind == serial {
			limit = 0 // nobody knows who has posted it
		}
		below := c.below(l, s)
		for j := range below {
			below[j] = limit
		}
		c.reported[s] = limit
	}
}

// limit returns up to which chunk a root may send its shard for all that this rank cares. It goes
// beyond the shard's end, since a root that keeps less than a window under way wants to know what
// of its last one was taken.
func (c *credit) limit(l *layout, shard int) int {
	switch {
	case l.mode.window == 0:
		return l.chunks
	case c.link != nil:
		return c.link.limit(l.mode.window, c.most(l))
	}
	chain, index := l.position(shard)
	return min(max(0, c.taken[chain]+l.mode.window-index*l.chunks), c.most(l))
}

// most is the limit after which none is reported: the root may then send its last chunk, however much it keeps under
// way.
func (c *credit) most(l *layout) int { return l.chunks + l.mode.window - c.floor }

// below returns the limits for a shard that this rank's children in its root's tree have reported.
func (c *credit) below(l *layout, shard int) []uint32 {
	root := l.rootOf(shard)
	return c.child[l.topo.FirstChild(root):][:l.topo.Children(root)]
}

// room returns up to which chunk of the own shard all ranks have room.
func (c *credit) room(l *layout) int {
	low := c.most(l)
	for _, limit := range c.below(l, l.own) {
		low = min(low, int(limit))
	}
	return low
}

// bound returns up to which chunk of the own shard this rank may send with so many under way: what
// all ranks have room for, less the rest of the window, and no further than is abreast.
func (c *credit) bound(l *layout, underWay int) int {
	return min(c.room(l)-l.mode.window+underWay, c.abreast(l, underWay))
}

// abreast returns up to which chunk of the own shard this rank may send for the other chains not to
// fall behind: as far ahead of the least that has come from any of them as it may have under way.
// If all links are alike every chain gets the same share of each, as it must: the link into a root
// has one stream less to carry than those into the others, so once a chain has finished before the
// rest, a link is the limit that would not have been.
func (c *credit) abreast(l *layout, underWay int) int {
	chains := &l.mode.chains
	if chains.M == 1 {
		return l.chunks
	}
	mine, index := l.position(l.own)
	bound := (index + 1) * l.chunks
	for ch, taken := range c.taken {
		length := (chains.Head(ch+1) - chains.Head(ch)) * l.chunks
		if ch != mine && taken < length {
			bound = min(bound, taken+underWay)
		}
	}
	return max(0, bound-index*l.chunks)
}

// advance notes that this rank has taken the chunks of a shard before psn off its queue, or has
// sent its own up to next, and reports the limits that this moves.
func (c *credit) advance(l *layout, out *outbox, shard, psn, next int) {
	if l.mode.window == 0 {
		return
	}
	chain, index := l.position(shard)
	taken := max(c.taken[chain], index*l.chunks+psn)
	// The own shard takes no room: where the stream reaches it, chunks that were sent count as taken.
	if l.own >= 0 {
		if ch, i := l.position(l.own); ch == chain && taken >= i*l.chunks {
			taken = max(taken, i*l.chunks+next)
		}
	}
	c.taken[chain] = taken
	head, end := l.mode.chains.Head(chain), l.mode.chains.Head(chain+1)
	for s := head + c.granted[chain]; s < end && c.limit(l, s) > 0; s++ {
		c.report(l, out, s)
		if s == head+c.granted[chain] && (int(c.reported[s]) == c.most(l) || s == l.own) {
			c.granted[chain]++
		}
	}
}

// receive takes the limit that a child, and the ranks below it, set for a root. It returns the root's shard, or -1 for
// a message that no correct rank sends.
func (c *credit) receive(l *layout, from int, m *wire.Control) (shard int) {
	root := int(m.Root)
	if root >= l.topo.Size || l.mode.window == 0 || int(m.PSN) > c.most(l) {
		return -1
	}
	s, j := l.shard(root), l.topo.ChildIndex(root, from)
	if s < 0 || j < 0 {
		return -1
	}
	c.relay = c.relay || m.Count == 1
	at := &c.below(l, s)[j]
	*at = max(*at, m.PSN)
	return s
}

// report passes the limit for a shard to the parent in its root's tree once it has moved by a step.
func (c *credit) report(l *layout, out *outbox, s int) {
	if s == l.own {
		return
	}
	low := uint32(c.limit(l, s))
	for _, limit := range c.below(l, s) {
		low = min(low, limit)
	}
	// Counted in whole steps, what the levels of the tree hold back does not add up: all of them
	// together withhold less than one step, and nothing of what the root needs to finish.
	if low == c.reported[s] || low/c.step == c.reported[s]/c.step && int(low) < c.most(l) {
		return
	}
	c.reported[s] = low
	m, root := l.control(wire.Credit), l.rootOf(s)
	m.Root, m.PSN = uint16(root), low
	if c.relay {
		m.Count = 1
	}
	out.send(l.topo.Parent(root), m)
}

// slowest returns the children in this rank's own tree that leave the least room to send.
func (c *credit) slowest(l *layout) (ranks []int) {
	if l.mode.window == 0 {
		return nil
	}
	below := c.below(l, l.own)
	for j, limit := range below {
		if limit == slices.Min(below) {
			ranks = append(ranks, l.topo.Child(j))
		}
	}
	return ranks
}

// creditStep is how many chunks one credit message covers: few messages, but at least two in each
// window, so that the root does not run dry.
func creditStep(window int) uint32 {
	if window < 8 {
		return uint32(max(1, window/2))
	}
	return uint32(window / 4)
}

// fineStep is creditStep where the root keeps less than a window under way: two steps must fit in
// that. Ranks withhold less than one, so with two it always gets on.
func fineStep(window int) uint32 {
	const least = 4 // chunks, where a window has them twice
	return uint32(max(1, window/16, min(least, window/2)))
}
