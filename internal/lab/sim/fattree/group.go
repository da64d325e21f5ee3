package fattree

// Trees returns how many multicast trees there are: one for each topmost
// switch and rail. Tree k lies in rail k % Rails. As long as k / Rails is
// below the aggregation switches of a pod, trees share no links but the
// hosts'; beyond, they share those of the lowest tier of switches.
func (t *Tree) Trees() int { return t.rails * t.roots() }

func (t *Tree) roots() int {
	switch t.tiers {
	case 1:
		return 1
	case 2:
		return t.aggs
	default:
		return t.aggs * t.cores
	}
}

// path returns the rail of a tree, the number of its agg in every pod, and of
// the core in its plane.
func (t *Tree) path(tree int) (rail, plane, core int) {
	rail, k := tree%t.rails, tree/t.rails
	if t.aggs == 0 {
		return rail, 0, 0
	}
	return rail, k % t.aggs, k / t.aggs
}

// Root returns the topmost switch of a tree.
func (t *Tree) Root(tree int) int {
	rail, plane, core := t.path(tree)
	switch t.tiers {
	case 1:
		return t.leafNode(rail, 0)
	case 2:
		return t.aggNode(rail, 0, plane)
	default:
		return t.coreNode(rail, plane, core)
	}
}

// Member says whether a node is part of a tree; all hosts are.
func (t *Tree) Member(tree, node int) bool {
	if node < t.Hosts {
		return true
	}
	rail, plane, core := t.path(tree)
	s := t.at(node)
	return s.rail == rail && (s.level == 1 || s.plane == plane && (s.level == 2 || s.index == core))
}

// Uplink returns a node's port towards the root in a tree; -1 at the root and
// at switches outside the tree.
func (t *Tree) Uplink(tree, node int) int {
	rail, plane, core := t.path(tree)
	if node < t.Hosts {
		return t.Up(node, rail)
	}
	if node == t.Root(tree) || !t.Member(tree, node) {
		return -1
	}
	s := t.at(node)
	if s.level == 1 {
		return s.up + plane*t.trunk
	}
	return s.up + core
}

// Downlinks returns a switch's ports away from the root, which are numbered
// one after the other and the same in every tree that it is part of.
func (t *Tree) Downlinks(sw int) (first, n int) {
	s := t.at(sw)
	if s.level == 2 {
		return s.down, s.leaves
	}
	return s.down, s.downs
}

// Group returns a node's ports in a multicast tree: a copy goes to all but the
// one it came from. It is empty for a switch outside the tree. The slice is
// the tree's own.
func (t *Tree) Group(tree, node int) []int {
	rail, plane, core := t.path(tree)
	if node < t.Hosts {
		return []int{t.Up(node, rail)}
	}
	if !t.Member(tree, node) {
		return nil
	}
	s := t.at(node)
	switch {
	case node == t.Root(tree):
		return s.groups[0][:len(s.groups[0])-min(1, s.ups)]
	case s.level == 1:
		return s.groups[plane]
	default:
		return s.groups[core]
	}
}

// group lists a switch's ports in multicast trees, for each uplink that one
// may use: those down, and the uplink last.
func (s *switchPorts) group(trunk int) {
	downs := s.downs
	step := 1
	switch s.level {
	case 1:
		step = trunk
	case 2:
		downs = s.leaves
	}
	for u := 0; u == 0 || u < s.ups; u += step {
		g := make([]int, 0, downs+1)
		for d := range downs {
			g = append(g, s.down+d)
		}
		if s.ups > 0 {
			g = append(g, s.up+u)
		}
		s.groups = append(s.groups, g)
	}
}

// Parent returns the next switch towards a tree's root, of a host its leaf;
// -1 at the root and at switches outside the tree.
func (t *Tree) Parent(tree, node int) int {
	if up := t.Uplink(tree, node); up >= 0 {
		return t.Ports[up].To
	}
	return -1
}
