package nodes

// Way is how ranks move the bytes of a collective between hosts.
type Way string

// The ways.
const (
	Nodes  Way = "nodes"         // ours: what crosses a link crosses it once a host
	Switch Way = "nodes, switch" // and the network sums
	Flat   Way = "flat"          // ours: every rank as if it had a host of its own
	Ring   Way = "ring"          // through all ranks, host after host
)

// Collective is what is run.
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

// Crossing is what passes a host's link in each direction, in shards.
type Crossing struct{ Out, In int }

// Busiest is what passes in the direction in which more does, as long as which a link takes.
func (c Crossing) Busiest() int { return max(c.Out, c.In) }

// Crosses returns what a collective passes over each host's link, on two hosts or more; docs/NODES.md
// derives it.
func (w Way) Crosses(c Collective, hosts, perHost int) Crossing {
	ranks := hosts * perHost
	others := ranks - perHost
	gather, scatter := Crossing{perHost, others}, Crossing{others, others}
	switch w {
	case Switch:
		scatter.In = perHost
	case Flat:
		scatter = Crossing{perHost * others, perHost * others}
	case Ring:
		gather = Crossing{ranks - 1, ranks - 1}
		scatter = gather
	}
	switch c {
	case Allgather:
		return gather
	case ReduceScatter:
		return scatter
	default:
		return Crossing{gather.Out + scatter.Out, gather.In + scatter.In}
	}
}

// Speedup is how many times as long as a way the rings take for both at once, where links alone count.
func (w Way) Speedup(hosts, perHost int) float64 {
	return float64(Ring.Crosses(Both, hosts, perHost).Busiest()) / float64(w.Crosses(Both, hosts, perHost).Busiest())
}
