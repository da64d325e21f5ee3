package reduction

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// Place is a switch's in an aggregation tree.
type Place struct {
	Parent   int   // a node; -1: it is the root
	Number   int   // the member number of this switch at its parent
	Children []int // nodes, by member number
	Owner    []int // by rank: the member through which it is reached, or -1
}

// Plan is an aggregation tree: its switches and what each of them is told.
type Plan struct {
	At     map[int]*Place // by node
	Number []int          // by rank, the member number at the leaf
	order  []int          // of nodes, as ranks find them
	leaf   []int          // by rank, a node
	port   []int          // by rank, the one to the leaf
}

// NewPlan lays an aggregation tree. leaf[r] is the node that rank r is attached to, and the parent of the root is -1.
// In rank order, a host takes its number at its leaf, and a switch at its parent with its lowest rank.
func NewPlan(leaf []int, parent func(node int) int) *Plan {
	p := &Plan{At: map[int]*Place{}, Number: make([]int, len(leaf)), leaf: leaf}
	for r, node := range leaf {
		at, known := p.enter(node, parent)
		p.Number[r] = at.adopt(r)
		at.Owner[r] = p.Number[r]
		// Up to the root: a switch that is new is new to its parent as well.
		for at.Parent >= 0 {
			up, upKnown := p.enter(at.Parent, parent)
			if !known {
				at.Number = up.adopt(node)
			}
			up.Owner[r] = at.Number
			node, at, known = at.Parent, up, upKnown
		}
	}
	return p
}

// along lays an aggregation tree along a multicast tree. Leaves are alike in all plans of the same
// ranks; before, if not nil, is one to share them with.
func along(t *fattree.Tree, tree, ranks int, before *Plan) (*Plan, error) {
	leaf, port := make([]int, ranks), make([]int, ranks)
	for r := range ranks {
		ports := t.Group(tree, r)
		if len(ports) != 1 {
			return nil, fmt.Errorf("reduction: host %d has %d ports in tree %d: want 1", r, len(ports), tree)
		}
		port[r], leaf[r] = ports[0], t.Ports[ports[0]].To
	}
	p := NewPlan(leaf, func(node int) int { return t.Parent(tree, node) })
	p.port = port
	for _, node := range leaf {
		if before != nil && before.At[node] != nil {
			p.At[node].Owner = before.At[node].Owner
		}
	}
	return p, nil
}

// enter returns a switch's place, a new one unless it is known.
func (p *Plan) enter(node int, parent func(int) int) (at *Place, known bool) {
	if at = p.At[node]; at != nil {
		return at, true
	}
	at = &Place{Parent: parent(node), Owner: make([]int, len(p.leaf))}
	for r := range at.Owner {
		at.Owner[r] = -1
	}
	p.At[node] = at
	p.order = append(p.order, node)
	return at, false
}

// adopt takes a child and returns its member number.
func (at *Place) adopt(child int) int {
	at.Children = append(at.Children, child)
	return len(at.Children) - 1
}

// deep reports whether there is more than one switch.
func (p *Plan) deep() bool { return len(p.order) > 1 }
