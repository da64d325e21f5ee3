package experiment

// crossing is what passes a host's link in each direction, in shards of n bytes.
type crossing struct{ out, in int }

func (c crossing) plus(d crossing) crossing { return crossing{c.out + d.out, c.in + d.in} }

// busiest is what passes in the direction in which more does, which is how long a link takes that
// carries both directions at once.
func (c crossing) busiest() int { return max(c.out, c.in) }

// way is how ranks move the bytes of a collective between hosts.
type way string

// The ways that are measured beside each other.
const (
	nodesWay       way = "nodes"         // ours: what crosses a link crosses it once a host
	nodesSwitchWay way = "nodes, switch" // and an aggregation node sums
	flatWay        way = "flat"          // ours: every rank as if it had a host of its own
	flatSwitchWay  way = "flat, switch"
	ringWay        way = "ring" // through all ranks, host after host
	glooWay        way = "gloo" // the same; its Reduce-Scatter is an Allreduce, twice as much
	mpiWay         way = "mpi"  // OpenMPI has many algorithms: what it moves is counted alone
)

// crosses returns what a collective of one shard a rank passes over each host's link, on so many
// hosts with perHost ranks each; docs/NODES.md derives it. It is false of a way that has no law.
// An overlap is an Allgather and a Reduce-Scatter at once.
func (w way) crosses(collective string, hosts, perHost int) (crossing, bool) {
	ranks := hosts * perHost
	others := ranks - perHost
	var gather, scatter crossing
	switch w {
	case nodesWay:
		gather, scatter = crossing{perHost, others}, crossing{others, others}
	case nodesSwitchWay:
		gather, scatter = crossing{perHost, others}, crossing{others, perHost}
	case flatWay:
		gather, scatter = crossing{perHost, others}, crossing{perHost * others, perHost * others}
	case flatSwitchWay: // the node sums for ranks of one host, too
		gather, scatter = crossing{perHost, others}, crossing{perHost * (ranks - 1), perHost}
	case ringWay:
		gather, scatter = crossing{ranks - 1, ranks - 1}, crossing{ranks - 1, ranks - 1}
	case glooWay:
		gather, scatter = crossing{ranks - 1, ranks - 1}, crossing{2 * (ranks - 1), 2 * (ranks - 1)}
	default:
		return crossing{}, false
	}
	if hosts == 1 {
		return crossing{}, w != nodesSwitchWay && w != flatSwitchWay
	}
	switch collective {
	case "allgather":
		return gather, true
	case "reducescatter":
		return scatter, true
	case "overlap":
		return gather.plus(scatter), true
	}
	return crossing{}, false
}

// speedup is how many times as long as a way the ring takes for an Allgather and a Reduce-Scatter
// at once, where links alone count; 0: there is no law. With nodes and a switch it is 2 - 2/P for P
// ranks, however many of them share a host (Khalilov et al., SC24, appendix B, for one a host).
func (w way) speedup(hosts, perHost int) float64 {
	mine, known := w.crosses("overlap", hosts, perHost)
	rings, _ := ringWay.crosses("overlap", hosts, perHost)
	if !known || mine.busiest() == 0 {
		return 0
	}
	return float64(rings.busiest()) / float64(mine.busiest())
}
