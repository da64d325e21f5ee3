package team

import (
	"fmt"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// A group works on two levels where there are several hosts, and several ranks on some: the ranks of a host are a node,
// which shares a region of memory, and the ranks with the same place in their nodes are a column, which the network
// joins. Data that must cross a host's link cross it once, by one column (columns take turns), and get to the other
// ranks of the node through memory (decision 0044).
//
// There are as many columns as the smallest host has ranks. A rank of a larger host that is in no column reaches other
// hosts through a rank of its own host that is in one.

// Members are ranks of a group that work together, and this rank's place among them.
type Members struct {
	Ranks []int // of the group
	Own   int   // this rank's index
	All   bool  // they are all ranks of the group, by rank
}

// Everyone are all ranks of a group.
func Everyone(rank, size int) Members {
	m := Members{Ranks: make([]int, size), Own: rank, All: true}
	for r := range m.Ranks {
		m.Ranks[r] = r
	}
	return m
}

// Size is how many they are.
func (m *Members) Size() int { return len(m.Ranks) }

// Others are all but this one.
func (m *Members) Others() []int {
	return slices.Concat(m.Ranks[:m.Own], m.Ranks[m.Own+1:])
}

// ByPlace keeps the entries of a map for the ranks that are members, by place instead of by rank.
func ByPlace[T any](m *Members, byRank map[int]T) map[int]T {
	all := make(map[int]T, len(byRank))
	for place, r := range m.Ranks {
		if v, has := byRank[r]; has {
			all[place] = v
		}
	}
	return all
}

// Rank returns the rank of an index; -1, which is none, stays.
func (m *Members) Rank(index int) int {
	if index < 0 {
		return index
	}
	return m.Ranks[index]
}

// Name returns the rank of a place. What another rank made up is no place, and stays.
func (m *Members) Name(place int) int {
	if place >= 0 && place < m.Size() {
		return m.Ranks[place]
	}
	return place
}

// Pick returns what belongs to them, of something that each rank of the group has one of.
func Pick[T any](m *Members, of []T) []T {
	all := make([]T, 0, len(m.Ranks))
	for _, r := range m.Ranks {
		all = append(all, of[r])
	}
	return all
}

// nodesOf returns the ranks of each host, in the order in which hosts come first, or why a group
// cannot work on two levels. Ranks of a host that are of different users share no memory, and so
// those of each user count as a host.
func nodesOf(ranks []Host) (nodes [][]int, flat string) {
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
func sharesMemory(a, b *Host) bool {
	return netdev.SameHost(a.ID, b.ID) && !netdev.DifferentUsers(a.user, b.user)
}

// apart says which two ranks of a host are the first that share no memory; empty: there are none.
func apart(ranks []Host) string {
	for r := range ranks {
		for other := range r {
			a, b := &ranks[other], &ranks[r]
			if netdev.SameHost(a.ID, b.ID) && !sharesMemory(a, b) {
				userA, _, _ := strings.Cut(a.user, "/")
				userB, _, _ := strings.Cut(b.user, "/")
				return fmt.Sprintf("ranks %d and %d of one host run as users %s and %s, and so share no memory", other, r, userA,
					userB)
			}
		}
	}
	return ""
}

// Surplus is a rank that is in no column.
type Surplus struct {
	Rank, Host, Place int
	Column            int // the place of the rank of its host that stands for it
	Row               int // its index among the ranks that this column sums for, see ownersOf
}

// ownersOf returns the ranks that each column sums for: the ranks at its place of each host and, behind these, host by
// host, the surplus ranks that it stands for. all describes every surplus rank.
func ownersOf(nodes [][]int) (owners [][]int, all []Surplus) {
	columns, _ := fewestAndMost(nodes)
	owners = make([][]int, columns)
	for column := range owners {
		owners[column] = at(nodes, column)
	}
	for host, node := range nodes {
		for place := columns; place < len(node); place++ {
			rank, column := node[place], place%columns
			all = append(all, Surplus{Rank: rank, Host: host, Place: place, Column: column, Row: len(owners[column])})
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
func (a *Plan) layOut() {
	a.Column = Everyone(a.Rank, a.Size)
	switch nodes, flat := nodesOf(a.Hosts); {
	case a.Settings.Nodes == "off":
		a.flat = "MCAST_NODES=off"
	case flat != "":
		a.flat = flat
	case overNetwork(a.Settings.Fabric):
		a.flat = "MCAST_FABRIC=" + a.Settings.Fabric + " leaves no memory to be shared"
	default:
		a.Nodes = nodes
		a.Columns, a.most = fewestAndMost(nodes)
		a.Owners, a.Surplus = ownersOf(nodes)
		h, place := a.Where(a.Rank)
		a.HostIndex, a.Node = h, Members{Ranks: nodes[h], Own: place}
		a.Column = Members{Ranks: []int{a.Rank}}
		if a.Crosses() {
			a.Column = Members{Ranks: at(nodes, place), Own: h}
		}
		a.Ring = ringOf(Pick(&a.Column, a.Hosts))
	}
}

// Flat returns the plan of one level, and notes why.
func (a *Plan) Flat(why string) *Plan {
	b := *a
	b.Nodes, b.Owners, b.Surplus, b.flat = nil, nil, nil, why
	b.Node, b.HostIndex, b.Columns, b.most = Members{}, 0, 0, 0
	b.Column, b.Ring = Everyone(a.Rank, a.Size), ringOf(a.Hosts)
	return &b
}

// TwoLevel reports whether there are nodes.
func (a *Plan) TwoLevel() bool { return a.Nodes != nil }

// LevelsReason says in words why there are nodes, or none.
func (a *Plan) LevelsReason() string {
	if !a.TwoLevel() {
		return a.flat
	}
	if !a.Even() {
		return fmt.Sprintf("%d hosts hold %d to %d ranks", len(a.Nodes), a.Columns, a.most)
	}
	return fmt.Sprintf("%d hosts hold %d ranks each", len(a.Nodes), a.Columns)
}

// Even reports whether all hosts hold as many ranks.
func (a *Plan) Even() bool { return a.Columns == a.most }

// Crosses reports whether this rank takes part in what crosses the network: whether there are no nodes, or
// it is in a column of several. Else it is alone in one.
func (a *Plan) Crosses() bool { return !a.TwoLevel() || a.Node.Own < a.Columns }

// Remote returns the ranks that this rank reaches over the network alone, and this rank: with nodes, those of other
// hosts.
func (a *Plan) Remote() (m Members) {
	for r := range a.Size {
		if r == a.Rank {
			m.Own = len(m.Ranks)
		} else if slices.Contains(a.Node.Ranks, r) {
			continue
		}
		m.Ranks = append(m.Ranks, r)
	}
	m.All = len(m.Ranks) == a.Size
	return m
}

// at returns the rank at a place of each host; all hosts have that place.
func at(nodes [][]int, place int) (ranks []int) {
	for _, node := range nodes {
		ranks = append(ranks, node[place])
	}
	return ranks
}

// Where returns in which node a rank is, and at which place there.
func (a *Plan) Where(rank int) (node, place int) {
	for h := range a.Nodes {
		if i := slices.Index(a.Nodes[h], rank); i >= 0 {
			return h, i
		}
	}
	panic(fmt.Sprintf("team: rank %d is in no node", rank))
}

// StoodFor is for how many ranks a column stands.
func (a *Plan) StoodFor(column int) int { return len(a.Owners[column]) - len(a.Nodes) }

// Hosted are the ranks of a host that a column stands for: rows from up to to of its sums.
type Hosted struct{ Host, From, To int }

// StandsFor returns whom this rank's column stands for.
func (a *Plan) StandsFor() (all []Hosted) {
	for _, r := range a.Surplus {
		switch end := len(all) - 1; {
		case r.Column != a.Node.Own:
		case end >= 0 && all[end].Host == r.Host:
			all[end].To++
		default:
			all = append(all, Hosted{r.Host, r.Row, r.Row + 1})
		}
	}
	return all
}
