package fattree

// Next returns the port through which a packet goes from a node towards
// another, host or switch; hash chooses among equal ones, the same at every
// node for the same hash, and at a host with several rails the rail (the
// remainder). It is -1 at the goal, and between switches of different rails.
//
// Routes to hosts are shortest and go up and then down, so that links wait for
// each other in no circle. Routes to a switch that no such route reaches, as
// from spine to spine, go through a leaf.
func (t *Tree) Next(node, to int, hash uint64) int {
	first, n, step := t.Equal(node, to, hash)
	switch n {
	case 0:
		return -1
	case 1:
		return first
	}
	// Levels choose by different bits: else all that an agg gets by a hash
	// would leave by the same uplink.
	h := hash / uint64(t.rails)
	if node >= t.Hosts && t.at(node).level == 2 {
		h /= uint64(t.aggs * t.trunk)
	}
	return first + step*int(h%uint64(n))
}

// Equal returns the equal ports towards a node: the first, how many, and the
// distance from one to the next. A host has one such port, on the rail that the
// hash picks.
func (t *Tree) Equal(node, to int, hash uint64) (first, n, step int) {
	if node == to {
		return 0, 0, 0
	}
	if node < t.Hosts {
		rail := int(hash % uint64(t.rails))
		if to >= t.Hosts {
			rail = t.at(to).rail
		}
		return t.Up(node, rail), 1, 1
	}
	s := t.at(node)
	if to < t.Hosts {
		return t.towards(s, to, t.leaf[to])
	}
	g := t.at(to)
	if g.rail != s.rail {
		return 0, 0, 0
	}
	switch {
	case g.level == 1:
		return t.towards(s, -1, g.index)
	case s.level == 1: // only the aggs of its plane lead to g
		return s.up + g.plane*t.trunk, t.trunk, 1
	case s.level == 3:
		if g.level == 2 {
			return s.down + g.pod, 1, 1
		}
		return s.down, s.downs, 1
	case s.plane != g.plane:
		return s.down, s.downs, 1
	case g.level == 3:
		return s.up + g.index, 1, 1
	default: // the agg of the same number in another pod
		return s.up, s.ups, 1
	}
}

// towards returns the ports from a switch towards a leaf, or a host beneath it
// (-1: none).
func (t *Tree) towards(s *switchPorts, host, leaf int) (first, n, step int) {
	switch {
	case s.level == 1 && s.index == leaf:
		return s.down + host - t.firstHost(s), 1, 1
	case s.level == 1:
		return s.up, s.ups, 1
	case s.level == 2 && leaf >= s.first && leaf < s.first+s.leaves:
		return s.down + leaf - s.first, t.trunk, s.leaves
	case s.level == 2:
		return s.up, s.ups, 1
	default:
		return s.down + leaf/t.perPod, 1, 1
	}
}

// firstHost returns the first host beneath a leaf.
func (t *Tree) firstHost(s *switchPorts) int { return t.Ports[s.down].To }
