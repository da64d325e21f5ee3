package nodes

import "github.com/torch-mcast/torch-mcast/internal/crossing"

// Way is how ranks move the bytes of a collective between hosts.
type Way string

// The ways.
const (
	Nodes  = Way(crossing.Nodes)
	Switch = Way(crossing.NodesSwitch)
	Flat   = Way(crossing.Flat)
	Ring   = Way(crossing.Ring)
)

// Collective is the operation of a run.
type Collective string

// The collectives.
const (
	Allgather     Collective = "allgather"
	ReduceScatter Collective = "reducescatter"
	Both          Collective = "both" // at once
)

// Ways and Collectives are all of them.
var (
	Ways        = []Way{Ring, Flat, Nodes, Switch}
	Collectives = []Collective{Allgather, ReduceScatter, Both}
)

// Crosses returns what a collective passes over each host's link, on two hosts or more.
func (w Way) Crosses(c Collective, hosts, perHost int) crossing.Load {
	law := crossing.Way(w)
	switch c {
	case Allgather:
		return law.Allgather(hosts, perHost)
	case ReduceScatter:
		return law.ReduceScatter(hosts, perHost)
	default:
		return law.Both(hosts, perHost)
	}
}

// Speedup is how many times as long as a way the rings take for both at once, where links alone count.
func (w Way) Speedup(hosts, perHost int) float64 { return crossing.Way(w).Speedup(hosts, perHost) }
