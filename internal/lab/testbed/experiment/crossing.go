package experiment

import "github.com/torch-mcast/torch-mcast/internal/crossing"

// way is how ranks move the bytes of a collective between hosts.
type way string

// The ways that are measured beside each other.
const (
	nodesWay       = way(crossing.Nodes)
	nodesSwitchWay = way(crossing.NodesSwitch)
	flatWay        = way(crossing.Flat)
	flatSwitchWay  = way(crossing.FlatSwitch)
	ringWay        = way(crossing.Ring)
	glooWay        = way(crossing.Gloo)
	mpiWay         = way("mpi") // OpenMPI has many algorithms: its traffic is counted, and has no law
)

// crosses returns what a collective of one shard a rank passes over each host's link, on so many
// hosts with perHost ranks each. It is false of a way, or a collective, that has no law. An overlap
// is an Allgather and a Reduce-Scatter at once.
func (w way) crosses(collective string, hosts, perHost int) (crossing.Load, bool) {
	law := crossing.Way(w)
	switch collective {
	case "allgather":
		return law.Allgather(hosts, perHost), law.Known()
	case "reducescatter":
		return law.ReduceScatter(hosts, perHost), law.Known()
	case "overlap":
		return law.Both(hosts, perHost), law.Known()
	}
	return crossing.Load{}, false
}

// speedup is how many times as long as a way the ring takes for an Allgather and a Reduce-Scatter
// at once, where links alone count; 0: there is no law.
func (w way) speedup(hosts, perHost int) float64 { return crossing.Way(w).Speedup(hosts, perHost) }
