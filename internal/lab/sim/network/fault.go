package network

import (
	"fmt"
	"math/bits"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// Faults are what goes wrong.
type Faults struct {
	// Loss is the probability that a packet is lost on a link to a host, each
	// receiver by itself; LinkLoss on any link. A train is lost as a whole if
	// any of its packets is, which for Count of them each by itself has the
	// probability 1-(1-p)^Count, here as for MulticastLoss and Corrupt.
	Loss, LinkLoss float64
	// MulticastLoss is the probability, in addition to Loss, that a multicast packet is lost on a link
	// to a host: 1 where the network does not pass the group.
	MulticastLoss float64
	// Burst is the mean length of a run of losses on a link, in packets, with
	// the same mean loss; 0 or 1: each by itself.
	Burst float64
	// Lossy links lose more, in both directions.
	Lossy []LossyLink
	// Corrupt is the probability that a packet arrives at a host damaged; the
	// NIC drops it. Duplicate, that it, or a train as one, arrives a second time.
	Corrupt, Duplicate float64
	// Jitter is up to how much later a packet reaches a host, each by itself.
	Jitter     Time
	Pauses     []Pause
	Slow       []Slow // of a host's receive path
	SlowNIC    []Slow // of a host's links
	Partitions []Partition
	Dead       []Dead     `json:",omitempty"`
	Filtered   []Filtered `json:",omitempty"`
}

// Filtered is a host to which no multicast passes for a while.
type Filtered struct {
	Host    int
	At, For Time
}

// LossyLink is all links between two nodes.
type LossyLink struct {
	A, B int
	Loss float64
}

// Pause stops a host: it takes nothing off its queues, which go on filling,
// and its Wakes wait.
type Pause struct {
	Node    int
	At, For Time
}

// Slow makes a host Factor times slower.
type Slow struct {
	Node   int
	Factor float64
}

// Partition takes the links of some hosts down.
type Partition struct {
	Hosts   []int
	At, For Time
	// Split leaves the links up, and lets pass what both comes from these hosts
	// and goes to them, or neither: the two sides talk among themselves. The
	// rest, copies of a multicast too, is lost on the last link. Switches as
	// senders and receivers are on the other hosts' side.
	Split bool
}

// check returns an error that says which value is wrong and which ones are allowed.
func (f *Faults) check(t *fattree.Tree) error {
	odds := func(name string, p float64) error {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("network: Faults.%s is %v, allowed are 0 to 1", name, p)
		}
		return nil
	}
	host := func(name string, h int) error {
		if h < 0 || h >= t.Hosts {
			return fmt.Errorf("network: Faults.%s is of node %d, allowed are hosts, 0 to %d", name, h, t.Hosts-1)
		}
		return nil
	}
	var errs []error
	errs = append(errs, odds("Loss", f.Loss), odds("LinkLoss", f.LinkLoss), odds("Corrupt", f.Corrupt),
		odds("Duplicate", f.Duplicate), odds("MulticastLoss", f.MulticastLoss))
	if !(f.Burst >= 0 && f.Burst <= 1e9) || f.Burst > 0 && f.Burst < 1 {
		errs = append(errs, fmt.Errorf("network: Faults.Burst is %v packets, allowed are 1 to 1e9, and 0 for 1", f.Burst))
	}
	for i, l := range f.Lossy {
		errs = append(errs, odds(fmt.Sprintf("Lossy[%d].Loss", i), l.Loss))
		if !linked(t, l.A, l.B) {
			errs = append(errs,
				fmt.Errorf("network: Faults.Lossy[%d] is between nodes %d and %d, allowed are nodes with a link", i, l.A, l.B))
		}
	}
	for i, p := range f.Pauses {
		name := fmt.Sprintf("Pauses[%d]", i)
		errs = append(errs, host(name, p.Node), within("Faults."+name+".At", p.At), within("Faults."+name+".For", p.For))
	}
	slow := func(name string, all []Slow) {
		for i, s := range all {
			errs = append(errs, host(fmt.Sprintf("%s[%d]", name, i), s.Node))
			if !(s.Factor > 0 && s.Factor <= MaxFactor) {
				errs = append(errs,
					fmt.Errorf("network: Faults.%s[%d].Factor is %v, allowed are above 0, up to %v", name, i, s.Factor, MaxFactor))
			}
		}
	}
	slow("Slow", f.Slow)
	slow("SlowNIC", f.SlowNIC)
	for i, p := range f.Partitions {
		name := fmt.Sprintf("Partitions[%d]", i)
		errs = append(errs, within("Faults."+name+".At", p.At), within("Faults."+name+".For", p.For))
		for _, h := range p.Hosts {
			errs = append(errs, host(name, h))
		}
	}
	for i, p := range f.Filtered {
		name := fmt.Sprintf("Filtered[%d]", i)
		errs = append(errs, host(name, p.Host), within("Faults."+name+".At", p.At), within("Faults."+name+".For", p.For))
	}
	for i := range f.Dead {
		errs = append(errs, f.Dead[i].check(fmt.Sprintf("Faults.Dead[%d]", i), t.Hosts))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// linked says whether two nodes have a link.
func linked(t *fattree.Tree, a, b int) bool {
	for i := range t.Ports {
		if t.Ports[i].From == a && t.Ports[i].To == b {
			return true
		}
	}
	return false
}

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

// anyOf returns the chance that at least one of count packets is met, each by itself.
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
	if n.apart(l, at, p) || n.dead(l, at, p) || n.filtered(l, at, p) {
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
		n.counts[q].Lost += uint64(p.Count)
		n.lost(p)
		return 0, false
	}
	if f.Corrupt > 0 && !p.spared() && n.draw(newChance(f.Corrupt).anyOf(p.Count)) {
		n.counts[q].Corrupt += uint64(p.Count)
		n.lost(p)
		return 0, false
	}
	if f.Duplicate > 0 && !p.Reliable && n.draw(newChance(f.Duplicate)) {
		n.push(head+n.jitter(), event{kind: again, port: int32(q), n: 1, tag: uint64(tail)}, p)
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

// filtered says whether no multicast passes to the receiver of a packet on its last link then.
func (n *Network) filtered(l *link, at int64, p *Packet) bool {
	if p.To != Multicast || n.tree.Switch(int(l.to)) {
		return false
	}
	for _, f := range n.Faults.Filtered {
		if f.Host == int(l.to) && at >= ps(f.At) && at < ps(f.At+f.For) {
			return true
		}
	}
	return false
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
