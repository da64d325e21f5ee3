package group

import (
	"fmt"
	"net"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// A group works on two levels where several hosts hold several ranks each, equally many: the ranks of
// a host are a node, which shares a region of memory, and the ranks with the same place in their nodes
// are a column, which the network joins. What must cross a host's link does so once, by the column
// whose turn it is, and gets to the other ranks of the node through memory (decision 0044).

// members are ranks of a group that work together, and which of them this rank is.
type members struct {
	ranks []int // of the group
	own   int   // this rank's index
}

// everyone are all ranks of a group.
func everyone(rank, size int) members {
	m := members{ranks: make([]int, size), own: rank}
	for r := range m.ranks {
		m.ranks[r] = r
	}
	return m
}

func (m *members) size() int { return len(m.ranks) }

// others are all but this one.
func (m *members) others() []int {
	return slices.Concat(m.ranks[:m.own], m.ranks[m.own+1:])
}

// conns are connections by index instead of by rank.
func (m *members) conns(byRank map[int]net.Conn) map[int]net.Conn {
	all := make(map[int]net.Conn, len(byRank))
	for i, r := range m.ranks {
		if c := byRank[r]; c != nil {
			all[i] = c
		}
	}
	return all
}

// rank returns the rank of an index; -1, which is none, stays.
func (m *members) rank(index int) int {
	if index < 0 {
		return index
	}
	return m.ranks[index]
}

// pick returns what belongs to them, of something that each rank of the group has one of.
func pick[T any](m *members, of []T) []T {
	all := make([]T, 0, len(m.ranks))
	for _, r := range m.ranks {
		all = append(all, of[r])
	}
	return all
}

// nodesOf returns the ranks of each host, in the order in which hosts come first, or why a group
// cannot work on two levels.
func nodesOf(ranks []host) (nodes [][]int, flat string) {
	hosts, of := hostsOf(ranks)
	nodes = make([][]int, len(hosts))
	for r, h := range of {
		nodes[h] = append(nodes[h], r)
	}
	each := len(nodes[0])
	for h := range nodes {
		if n := len(nodes[h]); n != each {
			return nil, fmt.Sprintf("hosts hold different numbers of ranks: %v %d, %v %d", hosts[0], each, hosts[h], n)
		}
	}
	switch {
	case len(nodes) == 1:
		return nil, "all ranks are on one host"
	case each == 1:
		return nil, "each host holds one rank"
	case each > shm.MaxSize:
		return nil, fmt.Sprintf("%d ranks a host are more than the %d that share memory", each, shm.MaxSize)
	}
	return nodes, ""
}

// layOut decides on which levels the group works. The fabric is known.
func (a *agreement) layOut() {
	a.column = everyone(a.rank, a.size)
	switch nodes, flat := nodesOf(a.hosts); {
	case a.settings.Nodes == "off":
		a.flat = "MCAST_NODES=off"
	case flat != "":
		a.flat = flat
	case a.settings.Fabric == "udp":
		a.flat = "MCAST_FABRIC=udp leaves no memory to be shared"
	default:
		a.nodes = nodes
		for h, node := range nodes {
			if place := slices.Index(node, a.rank); place >= 0 {
				a.node = members{node, place}
				a.column = members{make([]int, len(nodes)), h}
			}
		}
		for h, node := range nodes {
			a.column.ranks[h] = node[a.node.own]
		}
		a.ring = ringOf(pick(&a.column, a.hosts))
	}
}

// twoLevel reports whether there are nodes.
func (a *agreement) twoLevel() bool { return a.nodes != nil }

// levels says in words why there are nodes, or none.
func (a *agreement) levels() string {
	if !a.twoLevel() {
		return a.flat
	}
	return fmt.Sprintf("%d hosts hold %d ranks each", len(a.nodes), a.node.size())
}

// Nodes returns the ranks of each host, where the group works on two levels; else nil. The order in which
// it then sums is that of reduce.FoldNested.
func (g *Group) Nodes() [][]int { return g.agreed.nodes }

// where returns in which node a rank is, and at which place there.
func (a *agreement) where(rank int) (node, place int) {
	for h := range a.nodes {
		if i := slices.Index(a.nodes[h], rank); i >= 0 {
			return h, i
		}
	}
	panic(fmt.Sprintf("group: rank %d is in no node", rank))
}
