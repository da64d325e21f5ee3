// Package crossing says what a collective passes over the link of a host, by the way that ranks move its bytes;
// docs/explain/nodes.md derives it. Shards have n bytes each, a host's link carries both directions at once, and what
// ranks of one host give each other stays in memory.
package crossing

// Load is what passes a host's link in each direction, in shards of n bytes.
type Load struct{ Out, In int }

// Plus is both at once.
func (l Load) Plus(m Load) Load { return Load{l.Out + m.Out, l.In + m.In} }

// Busiest is what passes in the direction in which more does, which is how long a link takes that
// carries both directions at once.
func (l Load) Busiest() int { return max(l.Out, l.In) }

// Way is how ranks move the bytes of a collective between hosts.
type Way string

// The ways that have a law.
const (
	Nodes       Way = "nodes"         // ours: what crosses a link crosses it once a host
	NodesSwitch Way = "nodes, switch" // and an aggregation node sums
	Flat        Way = "flat"          // ours: every rank as if it had a host of its own
	FlatSwitch  Way = "flat, switch"  // the node sums for ranks of one host, too
	Ring        Way = "ring"          // through all ranks, host after host: ours, NCCL's and gloo's Allgather
	Gloo        Way = "gloo"          // the same; its Reduce-Scatter is an Allreduce, twice as much
)

// Known reports whether a way has a law.
func (w Way) Known() bool {
	switch w {
	case Nodes, NodesSwitch, Flat, FlatSwitch, Ring, Gloo:
		return true
	}
	return false
}

// Allgather returns what one of a shard a rank passes over each host's link, on so many hosts with perHost ranks each.
// On one host, and of a way without a law, it is nothing.
func (w Way) Allgather(hosts, perHost int) Load {
	ranks := hosts * perHost
	switch {
	case hosts < 2 || !w.Known():
		return Load{}
	case w == Ring || w == Gloo:
		return Load{ranks - 1, ranks - 1}
	}
	return Load{perHost, ranks - perHost}
}

// ReduceScatter returns what one of a shard a rank passes over each host's link. On one host, and of a way without a
// law, it is nothing.
func (w Way) ReduceScatter(hosts, perHost int) Load {
	ranks := hosts * perHost
	others := ranks - perHost
	if hosts < 2 {
		return Load{}
	}
	switch w {
	case Nodes:
		return Load{others, others}
	case NodesSwitch:
		return Load{others, perHost}
	case Flat:
		return Load{perHost * others, perHost * others}
	case FlatSwitch:
		return Load{perHost * (ranks - 1), perHost}
	case Ring:
		return Load{ranks - 1, ranks - 1}
	case Gloo:
		return Load{2 * (ranks - 1), 2 * (ranks - 1)}
	}
	return Load{}
}

// Both returns what an Allgather and a Reduce-Scatter at once pass.
func (w Way) Both(hosts, perHost int) Load {
	return w.Allgather(hosts, perHost).Plus(w.ReduceScatter(hosts, perHost))
}

// Allreduce returns what one of a shard a rank passes. Ours is a Reduce-Scatter and an Allgather, segment after segment
// at once; rings, gloo's too, go round twice.
func (w Way) Allreduce(hosts, perHost int) Load {
	if w == Gloo {
		w = Ring
	}
	return w.Both(hosts, perHost)
}

// Speedup is how many times as long as a way the ring takes for an Allgather and a Reduce-Scatter
// at once, where links alone count; 0: there is no law. With nodes and a switch it is 2 - 2/P for P
// ranks, however many of them share a host (Khalilov et al., SC24, appendix B, for one a host).
func (w Way) Speedup(hosts, perHost int) float64 {
	mine := w.Both(hosts, perHost).Busiest()
	if mine == 0 {
		return 0
	}
	return float64(Ring.Both(hosts, perHost).Busiest()) / float64(mine)
}
