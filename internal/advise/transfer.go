package advise

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/crossing"
)

// transfer is a collective of a rank, with its costs.
type transfer struct {
	*Collective
	took int64 // nanoseconds that it was under way at this rank
	// wire is the shortest took of all ranks: the last rank to come waits for nobody. With a single trace it is that
	// rank's own.
	wire     int64
	compared bool // whether another rank's is known
	step     int  // in which it was called
}

// late is what a rank has waited for others that came later.
func (x *transfer) late() int64 { return x.took - x.wire }

// transfers returns the transfers within the steps of each trace.
func transfers(traces []*Trace) [][]transfer {
	all := make([][]transfer, len(traces))
	byGroup := map[string][][]*transfer{} // by group, kind and number, of each trace
	for i, t := range traces {
		for j := range t.Collectives {
			c := &t.Collectives[j]
			after, exact := slices.BinarySearchFunc(t.steps, c.Posted,
				func(s span, at int64) int { return cmp.Compare(s.from, at) })
			if !exact {
				after--
			}
			if after >= 0 && c.Posted < t.steps[after].to {
				all[i] = append(all[i], transfer{Collective: c, took: c.during.length(), wire: c.during.length(), step: after})
			}
		}
		for j := range all[i] {
			x := &all[i][j]
			key := fmt.Sprint(x.Kind, x.Size, x.Group, x.Ranks, x.number)
			if byGroup[key] == nil {
				byGroup[key] = make([][]*transfer, len(traces))
			}
			byGroup[key][i] = append(byGroup[key][i], x)
		}
	}
	for _, ranks := range byGroup {
		ranks = slices.DeleteFunc(ranks, func(of []*transfer) bool { return len(of) == 0 })
		if len(ranks) > 1 && !slices.ContainsFunc(ranks, func(of []*transfer) bool { return len(of) != len(ranks[0]) }) {
			align(ranks)
		}
	}
	return all
}

// align has all ranks know the least that each collective took. Those of a group are posted in the same order
// everywhere; gloo's threads may begin them in another.
func align(ranks [][]*transfer) {
	for _, of := range ranks {
		slices.SortStableFunc(of, func(x, y *transfer) int { return cmp.Compare(x.Posted, y.Posted) })
	}
	for i := range ranks[0] {
		least := ranks[0][i].took
		for _, of := range ranks {
			least = min(least, of[i].took)
		}
		for _, of := range ranks {
			of[i].wire, of[i].compared = least, true
		}
	}
}

// layout is how a group lies on hosts.
type layout struct {
	hosts, perHost int     // ranks of the group on each
	beside         float64 // groups of its kind that share a host's links: as many as its ranks there do not fill it
}

// placed says how ranks of a group lie on hosts with so many ranks of the job each.
func (c *Collective) placed(perHost int) layout {
	if c.Size < 1 {
		return layout{1, 1, 1}
	}
	hosts := (c.Size + perHost - 1) / perHost
	if len(c.Ranks) > 0 {
		on := map[int]bool{}
		for _, r := range c.Ranks {
			on[r/perHost] = true
		}
		hosts = len(on)
	}
	here := (c.Size + hosts - 1) / hosts
	return layout{hosts, here, max(1, float64(perHost)/float64(here))}
}

// loads are bytes in each direction of a host's link.
type loads struct{ out, in float64 }

func (l loads) busiest() float64 { return max(l.out, l.in) }

// crosses returns what a collective passes over each host's link by a way; nothing, if no law is known for it.
func (c *Collective) crosses(w crossing.Way, perHost int) loads {
	p := c.placed(perHost)
	var l crossing.Load
	switch c.Kind {
	case Allgather:
		l = w.Allgather(p.hosts, p.perHost)
	case ReduceScatter:
		l = w.ReduceScatter(p.hosts, p.perHost)
	case Allreduce:
		l = w.Allreduce(p.hosts, p.perHost)
	}
	shard := float64(c.Bytes) / float64(max(c.Size, 1)) * p.beside
	return loads{float64(l.Out) * shard, float64(l.In) * shard}
}

// bus returns what NVIDIA's nccl-tests count for the bandwidth of a bus: bytes that a rank must send and get.
func (c *Collective) bus() float64 {
	others := float64(c.Size-1) / float64(max(c.Size, 1))
	switch c.Kind {
	case Allgather, ReduceScatter:
		return float64(c.Bytes) * others
	case Allreduce:
		return 2 * float64(c.Bytes) * others
	case Broadcast:
		return float64(c.Bytes)
	}
	return 0
}

// smallShard is the least shard for which bandwidth decides how long a collective takes; below it, delays of hosts and
// networks decide. torch_mcast.fsdp has the same bound.
const smallShard = 64 << 10

// small reports whether a message is so short that bytes do not count.
func (c *Collective) small() bool { return c.Bytes < smallShard*int64(max(c.Size, 1)) }
