package group

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// A group works on two levels where there are several hosts, and several ranks on some: the ranks of
// a host are a node, which shares a region of memory, and the ranks with the same place in their nodes
// are a column, which the network joins. What must cross a host's link does so once, by the column
// whose turn it is, and gets to the other ranks of the node through memory (decision 0044).
//
// There are as many columns as the smallest host has ranks. Ranks of larger hosts that are in none reach
// other hosts through one of their own host that is.

// members are ranks of a group that work together, and which of them this rank is.
type members struct {
	ranks []int // of the group
	own   int   // this rank's index
	all   bool  // they are all ranks of the group, by rank
}

// everyone are all ranks of a group.
func everyone(rank, size int) members {
	m := members{ranks: make([]int, size), own: rank, all: true}
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
// cannot work on two levels. Ranks of a host that are of different users share no memory, and so
// those of each user count as a host.
func nodesOf(ranks []host) (nodes [][]int, flat string) {
	for r := range ranks {
		i := slices.IndexFunc(nodes, func(node []int) bool { return sharesMemory(&ranks[node[0]], &ranks[r]) })
		if i < 0 {
			i, nodes = len(nodes), append(nodes, nil)
		}
		nodes[i] = append(nodes[i], r)
	}
	switch _, most := fewestAndMost(nodes); {
	case len(nodes) == 1:
		return nil, "all ranks are on one host"
	case most == 1:
		return nil, "each host holds one rank"
	case most > shm.MaxSize:
		return nil, fmt.Sprintf("%d ranks a host are more than the %d that share memory", most, shm.MaxSize)
	}
	return nodes, ""
}

// sharesMemory reports whether two ranks may have memory in common, as far as can be known before they try.
func sharesMemory(a, b *host) bool {
	return netdev.SameHost(a.id, b.id) && !netdev.DifferentUsers(a.user, b.user)
}

// apart says which two ranks of a host are the first that share no memory; empty: there are none.
func apart(ranks []host) string {
	for r := range ranks {
		for other := range r {
			a, b := &ranks[other], &ranks[r]
			if netdev.SameHost(a.id, b.id) && !sharesMemory(a, b) {
				userA, _, _ := strings.Cut(a.user, "/")
				userB, _, _ := strings.Cut(b.user, "/")
				return fmt.Sprintf("ranks %d and %d of one host run as users %s and %s, and so share no memory", other, r, userA, userB)
			}
		}
	}
	return ""
}

// surplus is a rank that is in no column.
type surplus struct {
	rank, host, place int
	column            int // the place of the rank of its host that stands for it
	row               int // which one it is of those that column sums for
}

// ownersOf returns the ranks that each column sums for: those at its place of each host and, behind these, host by
// host, those that they stand for, of which surplus says more.
func ownersOf(nodes [][]int) (owners [][]int, all []surplus) {
	columns, _ := fewestAndMost(nodes)
	owners = make([][]int, columns)
	for column := range owners {
		owners[column] = at(nodes, column)
	}
	for host, node := range nodes {
		for place := columns; place < len(node); place++ {
			rank, column := node[place], place%columns
			all = append(all, surplus{rank: rank, host: host, place: place, column: column, row: len(owners[column])})
			owners[column] = append(owners[column], rank)
		}
	}
	return owners, all
}

// fewestAndMost returns how many ranks the smallest and the largest host hold.
func fewestAndMost(nodes [][]int) (fewest, most int) {
	fewest = len(nodes[0])
	for _, node := range nodes {
		fewest, most = min(fewest, len(node)), max(most, len(node))
	}
	return fewest, most
}

// layOut decides on which levels the group works. The fabric is known.
func (a *agreement) layOut() {
	a.column = everyone(a.rank, a.size)
	switch nodes, flat := nodesOf(a.hosts); {
	case a.settings.Nodes == "off":
		a.flat = "MCAST_NODES=off"
	case flat != "":
		a.flat = flat
	case fabrics[a.settings.Fabric].connects:
		a.flat = "MCAST_FABRIC=" + a.settings.Fabric + " leaves no memory to be shared"
	default:
		a.nodes = nodes
		a.columns, a.most = fewestAndMost(nodes)
		a.owners, a.surplus = ownersOf(nodes)
		h, place := a.where(a.rank)
		a.host, a.node = h, members{ranks: nodes[h], own: place}
		a.column = members{ranks: []int{a.rank}}
		if a.crosses() {
			a.column = members{ranks: at(nodes, place), own: h}
		}
		a.ring = ringOf(pick(&a.column, a.hosts))
	}
}

// flatten leaves one level, and says why.
func (a *agreement) flatten(why string) {
	a.nodes, a.owners, a.surplus, a.flat = nil, nil, nil, why
	a.node, a.host, a.columns, a.most = members{}, 0, 0, 0
	a.column, a.ring = everyone(a.rank, a.size), ringOf(a.hosts)
}

// twoLevel reports whether there are nodes.
func (a *agreement) twoLevel() bool { return a.nodes != nil }

// levels says in words why there are nodes, or none.
func (a *agreement) levels() string {
	if !a.twoLevel() {
		return a.flat
	}
	if !a.even() {
		return fmt.Sprintf("%d hosts hold %d to %d ranks", len(a.nodes), a.columns, a.most)
	}
	return fmt.Sprintf("%d hosts hold %d ranks each", len(a.nodes), a.columns)
}

// even reports whether all hosts hold as many ranks.
func (a *agreement) even() bool { return a.columns == a.most }

// crosses reports whether this rank takes part in what crosses the network: whether there are no nodes, or
// it is in a column of several. Else it is alone in one.
func (a *agreement) crosses() bool { return !a.twoLevel() || a.node.own < a.columns }

// at returns the rank at a place of each host; all hosts have that place.
func at(nodes [][]int, place int) (ranks []int) {
	for _, node := range nodes {
		ranks = append(ranks, node[place])
	}
	return ranks
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
