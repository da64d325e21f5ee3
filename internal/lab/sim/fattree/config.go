// Package fattree describes networks of switches as static trees: the nodes,
// the directed ports between them, the shortest routes with their equal
// alternatives, and the multicast trees. Nothing is tabulated by pairs of
// nodes, so that 16,384 hosts take a few megabytes.
//
// Every network is seen as pods of leaves and aggregation switches, with core
// switches above the pods. A star is one leaf. A tree of two tiers is one pod,
// and its aggregation switches are the spines.
package fattree

import "fmt"

// Config says what network to build.
type Config struct {
	Hosts int
	// Radix is how many ports a switch has; 0 (and no Leaves): one switch that
	// joins all hosts.
	Radix int
	// Tiers of switches, 1 to 3; 0: the fewest that hold Hosts.
	Tiers int
	// Leaves and Spines give a tree of two tiers instead. The hosts are spread
	// evenly over its leaves, and a leaf has as many links to each spine as
	// Oversubscription asks for. 0: by Radix.
	Leaves, Spines int
	// Oversubscription is the ratio of a leaf's host ports to its uplinks;
	// 0 or 1: full bisection.
	Oversubscription float64
	// Rails is how many NICs a host has, each in a fat tree of its own; 0: 1.
	Rails int
}

// Limits of a Config.
const (
	MaxHosts = 1 << 20
	MaxRails = 16
	MaxRadix = 1 << 10
)

// shape is a plane in numbers.
type shape struct {
	tiers   int
	leaves  int // in all
	pods    int
	perPod  int // leaves of a pod; the last pod may have fewer
	perLeaf int // hosts of a leaf at most
	even    bool
	aggs    int // of a pod; spines with two tiers, 0 with one
	trunk   int // links between a leaf and each of its aggs
	cores   int // of each agg number, so aggs*cores in all
}

// shape checks the Config and resolves it.
func (c *Config) shape() (s shape, err error) {
	over := c.Oversubscription
	if over == 0 {
		over = 1
	}
	switch {
	case c.Hosts < 1 || c.Hosts > MaxHosts:
		return s, fmt.Errorf("fattree: Hosts is %d, allowed are 1 to %d", c.Hosts, MaxHosts)
	case c.Rails < 0 || c.Rails > MaxRails:
		return s, fmt.Errorf("fattree: Rails is %d, allowed are 1 to %d, and 0 for 1", c.Rails, MaxRails)
	case c.Radix < 0 || c.Radix == 1 || c.Radix > MaxRadix:
		return s, fmt.Errorf("fattree: Radix is %d, allowed are 2 to %d, and 0 for a star", c.Radix, MaxRadix)
	case c.Tiers < 0 || c.Tiers > 3:
		return s, fmt.Errorf("fattree: Tiers is %d, allowed are 1 to 3, and 0 for the fewest that hold the hosts", c.Tiers)
	case !(over >= 1 && over <= MaxRadix):
		return s,
			fmt.Errorf("fattree: Oversubscription is %v, allowed are 1 to %d, and 0 for 1", c.Oversubscription, MaxRadix)
	case c.Leaves != 0 || c.Spines != 0:
		return c.given(over)
	case c.Radix == 0 && c.Tiers > 1:
		return s, fmt.Errorf("fattree: Tiers is %d without a Radix; a star has 1 tier", c.Tiers)
	}
	star := shape{tiers: 1, leaves: 1, pods: 1, perPod: 1, perLeaf: c.Hosts, trunk: 1}
	if c.Radix == 0 || c.Hosts <= c.Radix && c.Tiers <= 1 {
		return star, nil
	}
	// The fewest uplinks that keep to the ratio; the other ports take hosts.
	up := 1
	for up < c.Radix-1 && float64(c.Radix-up) > over*float64(up) {
		up++
	}
	half := c.Radix / 2
	s = shape{perLeaf: c.Radix - up, aggs: up, trunk: 1}
	s.leaves = (c.Hosts + s.perLeaf - 1) / s.perLeaf
	two, three := s.perLeaf*c.Radix, s.perLeaf*half*c.Radix
	switch {
	case c.Tiers <= 2 && c.Tiers != 1 && c.Hosts <= two:
		s.tiers, s.pods, s.perPod = 2, 1, s.leaves
	case (c.Tiers == 3 || c.Tiers == 0) && c.Hosts <= three:
		s.tiers, s.perPod, s.cores = 3, half, half
		s.pods = (s.leaves + half - 1) / half
	default:
		return s,
			fmt.Errorf("fattree: %d hosts do not fit: switches of Radix %d hold %d in 1 tier, %d in 2, %d in 3 (Tiers is %d)",
				c.Hosts, c.Radix, c.Radix, two, three, c.Tiers)
	}
	return s, nil
}

// given is the shape of a tree with given leaves and spines.
func (c *Config) given(over float64) (s shape, err error) {
	switch {
	case c.Leaves < 1 || c.Spines < 1:
		return s, fmt.Errorf("fattree: Leaves is %d and Spines %d, allowed are both or none", c.Leaves, c.Spines)
	case c.Leaves > c.Hosts:
		return s, fmt.Errorf("fattree: Leaves is %d, allowed are as many as there are hosts at most, %d", c.Leaves, c.Hosts)
	case c.Spines > MaxRadix:
		return s, fmt.Errorf("fattree: Spines is %d, allowed are 1 to %d", c.Spines, MaxRadix)
	case c.Tiers != 0 && c.Tiers != 2:
		return s, fmt.Errorf("fattree: Tiers is %d, allowed with Leaves and Spines are 2, and 0", c.Tiers)
	}
	s = shape{tiers: 2, leaves: c.Leaves, pods: 1, perPod: c.Leaves, aggs: c.Spines, trunk: 1, even: true}
	s.perLeaf = (c.Hosts + c.Leaves - 1) / c.Leaves
	for float64(s.perLeaf) > over*float64(s.aggs*s.trunk) {
		s.trunk++
	}
	if c.Radix != 0 && (s.perLeaf+s.aggs*s.trunk > c.Radix || s.leaves*s.trunk > c.Radix) {
		return s,
			fmt.Errorf("fattree: Radix is %d, but %d hosts on %d leaves and %d spines need %d ports of a leaf and %d of a spine",
				c.Radix, c.Hosts, c.Leaves, c.Spines, s.perLeaf+s.aggs*s.trunk, s.leaves*s.trunk)
	}
	return s, nil
}
