package network

// chance is a probability as a bound for a random word, so that it needs no
// floating point when it is drawn.
type chance uint64

const always = ^chance(0)

func newChance(p float64) chance {
	if p >= 1 {
		return always
	}
	return chance(p * (1 << 64))
}

func (n *Network) draw(c chance) bool { return c == always || chance(n.rng.Uint64()) < c }

// loss is how a link loses packets. In runs, it is Gilbert's model with
// everything lost in the bad state (Gilbert, Bell System Technical Journal 39,
// 1960).
type loss struct {
	mean       chance
	begin, end chance // of a run, a packet; begin 0: each packet by itself
}

// newLoss returns a loss of a mean in runs of a mean length. Where the mean is
// so high that runs of that length would have to touch, they are longer.
func newLoss(mean, burst float64) loss {
	l := loss{mean: newChance(mean)}
	if burst > 1 && mean < 1 {
		end := 1 / burst
		begin := mean * end / (1 - mean)
		if begin > 1 {
			begin, end = 1, (1-mean)/mean
		}
		l.begin, l.end = newChance(begin), newChance(end)
	}
	return l
}

// loses says whether a link loses a packet that it begins to send at a moment.
func (n *Network) loses(l *link, at int64, p *Packet) bool {
	if l.down != nil && l.down.has(at) {
		return true
	}
	if l.loss < 0 {
		return false
	}
	lost := n.chance(l)
	return lost && !p.spared()
}

func (n *Network) chance(l *link) bool {
	k := &n.losses[l.loss]
	switch {
	case k.begin == 0 || l.bad == 0:
		lost := n.draw(k.mean)
		l.bad = -1
		if lost {
			l.bad = 1
		}
		return lost
	case l.bad > 0:
		if n.draw(k.end) {
			l.bad = -1
		}
	default:
		if n.draw(k.begin) {
			l.bad = 1
		}
	}
	return l.bad > 0
}

// mishap lets a packet that reaches a host be damaged, doubled or late. It
// returns how much later it lands; false: it does not.
func (n *Network) mishap(p *Packet, q int, head, tail int64) (late int64, ok bool) {
	f := &n.Faults
	if f.MulticastLoss > 0 && p.To == Multicast && n.draw(newChance(f.MulticastLoss)) {
		n.counts[q].Lost += uint64(p.Count) //nolint:gosec // positive
		n.lost(p)
		return 0, false
	}
	if f.Corrupt > 0 && !p.spared() && n.draw(newChance(f.Corrupt)) {
		n.counts[q].Corrupt += uint64(p.Count) //nolint:gosec // positive
		n.lost(p)
		return 0, false
	}
	if f.Duplicate > 0 && !p.Reliable && n.draw(newChance(f.Duplicate)) {
		n.push(head+n.jitter(), event{kind: again, port: int32(q), n: 1, tag: uint64(tail)}, p) //nolint:gosec // small
	}
	return n.jitter(), true
}

// jitter returns how much later a packet lands, in ps.
func (n *Network) jitter() int64 {
	if n.Faults.Jitter == 0 {
		return 0
	}
	return n.rng.Int64N(ps(n.Faults.Jitter) + 1)
}

// downs returns when the links of hosts are down.
func (f *Faults) downs() map[int]*spans {
	all := map[int]*spans{}
	for _, p := range f.Partitions {
		for _, h := range p.Hosts {
			all[h] = all[h].add(p.At, p.For)
		}
	}
	return all
}
