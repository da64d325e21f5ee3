package advise

import (
	"cmp"
	"slices"
)

// flights returns the collectives, those of the backend that moves the tensors: on a GPU gloo carries at most words
// beside NCCL.
func (b *builder) flights() []flight {
	b.describe()
	found := slices.Concat(b.nccl, b.mcast)
	switch {
	case len(b.nccl) > len(b.mcast):
		b.job.Backend = "nccl"
	case len(b.mcast) > 0:
		b.job.Backend = "mcast"
	default:
		b.job.Backend = "gloo"
		b.match()
		found = b.gloo
	}
	for i := range found {
		f := &found[i]
		m, known := b.records[f.external]
		switch {
		case known && f.in == 0 && f.out == 0:
			f.message = m
		case known && f.number == 0:
			f.number = m.number
		}
	}
	return found
}

// describe gives each of torch-mcast's collectives the message of the detail within it, the next one on its thread.
func (b *builder) describe() {
	slices.SortFunc(b.mcast, func(x, y flight) int { return inThreads(x.thread, x.during, y.thread, y.during) })
	slices.SortFunc(b.details, func(x, y detail) int { return inThreads(x.thread, x.during, y.thread, y.during) })
	next := 0
	for i := range b.mcast {
		f := &b.mcast[i]
		before := func(g *flight) bool { // whether the next details begin before a collective
			d := &b.details[next]
			return inThreads(d.thread, d.during, g.thread, g.during) < 0
		}
		for next < len(b.details) && before(f) {
			next++
		}
		if next == len(b.details) {
			return
		}
		d := &b.details[next]
		if d.thread == f.thread && d.during.to <= f.during.to && (i+1 == len(b.mcast) || before(&b.mcast[i+1])) {
			f.message = d.message
		}
	}
}

// inThreads orders events of threads by when they begin.
func inThreads(thread string, at span, other string, then span) int {
	return cmp.Or(cmp.Compare(thread, other), cmp.Compare(at.from, then.from))
}

// match finds the call that led to each collective of gloo. Calls wait for one of gloo's threads, in order. Its
// Reduce-Scatters are Allreduces, and the size of the output of an Allgather is known from the call alone.
func (b *builder) match() {
	slices.SortStableFunc(b.posts, func(x, y post) int { return cmp.Compare(x.at, y.at) })
	slices.SortStableFunc(b.gloo, func(x, y flight) int { return cmp.Compare(x.during.from, y.during.from) })
	first := 0
	taken := make([]bool, len(b.gloo))
	for _, p := range b.posts {
		for first < len(b.gloo) && (taken[first] || b.gloo[first].during.from < p.at) {
			first++
		}
		for i := first; i < min(first+ahead, len(b.gloo)); i++ {
			f := &b.gloo[i]
			if taken[i] || f.during.from < p.at || !p.fits(f) {
				continue
			}
			taken[i] = true
			f.kind, f.posted, f.out = p.kind, p.at, p.out
			if f.in == 0 {
				f.in = p.in
			}
			if f.kind == Allgather || f.kind == ReduceScatter {
				if small, large := min(f.in, f.out), max(f.in, f.out); small > 0 && large%small == 0 &&
					large/small <= maxTraceRanks {
					f.size = int(large / small)
				}
			}
			break
		}
	}
}

// ahead bounds how many of gloo's collectives are looked at for a call: those of its threads may begin out of order.
const ahead = 64

// fits reports whether a collective of gloo's may be the one that was called.
func (p *post) fits(f *flight) bool {
	if p.kind != f.kind && (p.kind != ReduceScatter || f.kind != Allreduce) {
		return false
	}
	return p.in == f.in || p.in == 0 || f.in == 0
}

// collective is a flight, with the facts known about its group.
func (b *builder) collective(f *flight) Collective {
	c := Collective{
		Kind: f.kind, Posted: f.posted, during: f.during, Type: f.dtype, Size: f.size, Group: f.group, Ranks: f.ranks,
		number: f.number,
	}
	if c.Size == 0 && len(b.job.Groups) <= 1 {
		c.Size = b.trace.World
	}
	if c.Ranks == nil && c.Size > 0 {
		if groups := b.groupsOf(c.Size); len(groups) == 1 {
			c.Ranks = groups[0]
		}
	}
	elements, shards := max(f.in, f.out), int64(1)
	if f.kind == Allgather && f.out == 0 || f.kind == ReduceScatter && f.in == 0 {
		shards = int64(c.Size) // only one's is known
	}
	if shards > 0 && elements <= maxElements/shards {
		c.Bytes = elements * shards * f.element
	}
	return c
}

// groupsOf returns the ranks of the groups of a size that the trace names.
func (b *builder) groupsOf(size int) (groups [][]int) {
	for _, g := range b.job.Groups {
		if g.Size == size && len(g.Ranks) == size {
			groups = append(groups, g.Ranks)
		}
	}
	return groups
}
