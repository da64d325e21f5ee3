package network

import "math/bits"

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

// anyOf returns the chance that of count packets, each by itself, any is met.
func (c chance) anyOf(count int32) chance {
	if count == 1 || c == 0 || c == always {
		return c
	}
	spared, each := uint64(always), -uint64(c) // as 64 bits after the point
	for ; count > 0; count >>= 1 {
		if count&1 == 1 {
			spared, _ = bits.Mul64(spared, each)
		}
		each, _ = bits.Mul64(each, each)
	}
	return chance(^spared)
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
	if n.apart(l, at, p) || n.dead(l, at, p) {
		return true
	}
	if l.loss < 0 {
		return false
	}
	k, lost := &n.losses[l.loss], false
	if k.begin == 0 {
		lost = n.draw(k.mean.anyOf(p.Count))
	} else {
		for range p.Count {
			lost = n.inRun(l, k) || lost
		}
	}
	return lost && !p.spared()
}

// inRun takes a bursty link on by a packet, and says whether it loses it.
func (n *Network) inRun(l *link, k *loss) bool {
	switch {
	case l.bad == 0:
		l.bad = -1
		if n.draw(k.mean) {
			l.bad = 1
		}
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
	if f.MulticastLoss > 0 && p.To == Multicast && n.draw(newChance(f.MulticastLoss).anyOf(p.Count)) {
		n.counts[q].Lost += uint64(p.Count) //nolint:gosec // positive
		n.lost(p)
		return 0, false
	}
	if f.Corrupt > 0 && !p.spared() && n.draw(newChance(f.Corrupt).anyOf(p.Count)) {
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
		if p.Split {
			continue
		}
		for _, h := range p.Hosts {
			all[h] = all[h].add(p.At, p.For)
		}
	}
	return all
}

// split is a Partition of two sides.
type split struct {
	span
	side []bool // by node
}

func (n *Network) layPartitions() {
	for _, p := range n.Faults.Partitions {
		if !p.Split {
			continue
		}
		s := split{span{ps(p.At), ps(p.At + p.For)}, make([]bool, n.tree.Nodes)}
		for _, h := range p.Hosts {
			s.side[h] = true
		}
		n.splits = append(n.splits, s)
	}
}

// apart says whether the receiver of a packet on its last link is on the other
// side of a partition then.
func (n *Network) apart(l *link, at int64, p *Packet) bool {
	if n.tree.Switch(int(l.to)) && l.to != p.To {
		return false
	}
	for i := range n.splits {
		s := &n.splits[i]
		if s.from <= at && at < s.to && s.side[p.From] != s.side[l.to] {
			return true
		}
	}
	return false
}
