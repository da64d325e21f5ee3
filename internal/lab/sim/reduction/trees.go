package reduction

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// position is a switch's in an aggregation tree.
type position struct {
	parent   int   // a node; -1: it is the root
	number   int   // the member number of this switch at its parent
	children []int // nodes, by member number
	owner    []int // by rank: the member through which it is reached, or -1
}

// plan is an aggregation tree: its switches and what each of them is told.
type plan struct {
	at     map[int]*position // by node
	order  []int             // of nodes, as ranks find them
	leaf   []int             // by rank, a node
	port   []int             // by rank, the one to the leaf
	number []int             // by rank, the member number at the leaf
}

// newPlan lays an aggregation tree along a multicast tree. In rank order, a host takes its number
// at its leaf, and a switch at its parent with its lowest rank. Leaves are alike in all plans of
// the same ranks; before, if not nil, is one to share them with.
func newPlan(t *fattree.Tree, tree, ranks int, before *plan) (*plan, error) {
	p := &plan{at: map[int]*position{}, leaf: make([]int, ranks), port: make([]int, ranks), number: make([]int, ranks)}
	for r := range ranks {
		ports := t.Group(tree, r)
		if len(ports) != 1 {
			return nil, fmt.Errorf("reduction: host %d has %d ports in tree %d: want 1", r, len(ports), tree)
		}
		p.port[r], p.leaf[r] = ports[0], t.Ports[ports[0]].To
		leaf, known := p.enter(t, tree, p.leaf[r], ranks)
		p.number[r] = leaf.adopt(r)
		leaf.owner[r] = p.number[r]
		// Up to the root: a switch that is new is new to its parent as well.
		for node, at := p.leaf[r], leaf; at.parent >= 0; {
			up, upKnown := p.enter(t, tree, at.parent, ranks)
			if !known {
				at.number = up.adopt(node)
			}
			up.owner[r] = at.number
			node, at, known = at.parent, up, upKnown
		}
	}
	for _, node := range p.leaf {
		if before != nil && before.at[node] != nil {
			p.at[node].owner = before.at[node].owner
		}
	}
	return p, nil
}

// enter returns a switch's position, a new one unless it is known.
func (p *plan) enter(t *fattree.Tree, tree, node, ranks int) (at *position, known bool) {
	if at = p.at[node]; at != nil {
		return at, true
	}
	at = &position{parent: t.Parent(tree, node), owner: make([]int, ranks)}
	for r := range at.owner {
		at.owner[r] = -1
	}
	p.at[node] = at
	p.order = append(p.order, node)
	return at, false
}

// adopt takes a child and returns its member number.
func (at *position) adopt(child int) int {
	at.children = append(at.children, child)
	return len(at.children) - 1
}

// deep reports whether there is more than one switch.
func (p *plan) deep() bool { return len(p.order) > 1 }
