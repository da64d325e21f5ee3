// Package topology says which ranks exchange control messages. Rank r is joined to the ranks r ±
// 2^k modulo P in the order of a ring, about 2 log2 P of them. The dissemination barrier, the credit tree of every
// root, the requests for lost chunks and the chains of roots that take turns all run on these edges
// (docs/decisions/0001). It computes, and keeps nothing: a leaf that imports nothing of this module.
package topology

import "math/bits"

// Graph is the graph of Size ranks as rank Rank sees it; 0 <= Rank < Size.
type Graph struct {
	Rank, Size int
	// Order is the order of the ring; nil: ranks are in the order of their numbers.
	Order *Order
}

// Left returns the rank before this one in the ring of all: it is asked for lost chunks.
func (g Graph) Left() int { return g.away(g.Size - 1) }

// Right returns the rank after this one in the ring of all: it asks this rank for lost chunks.
func (g Graph) Right() int { return g.away(1) }

// Rounds returns the number of rounds of the dissemination barrier: log2 Size, rounded up.
func (g Graph) Rounds() int { return bits.Len(uint(g.Size - 1)) }

// To returns the rank that this one sends to in a round of the barrier, 0 to Rounds-1.
func (g Graph) To(round int) int { return g.away(1 << round) }

// From returns the rank that this one hears from in a round of the barrier.
func (g Graph) From(round int) int { return g.away(g.Size - 1<<round) }

// Parent returns the next rank towards root in root's binomial tree. Numbered from the root, the
// parent of v is v without its lowest bit.
func (g Graph) Parent(root int) int {
	v := g.from(root)
	return g.away(g.Size - (v &^ (v & (v - 1))))
}

// away returns the rank that is so far from this one in the ring; distance >= 0.
func (g Graph) away(distance int) int {
	return g.Order.rank((g.Order.place(g.Rank) + distance) % g.Size)
}

// from returns how far this rank is from another one in the ring.
func (g Graph) from(other int) int {
	return (g.Order.place(g.Rank) - g.Order.place(other) + g.Size) % g.Size
}

// Children returns how many children this rank has in root's tree. Child j is Child(j).
func (g Graph) Children(root int) int {
	v := g.from(root)
	n := g.Rounds()
	if v != 0 {
		n = bits.TrailingZeros(uint(v))
	}
	for n > 0 && v+1<<(n-1) >= g.Size {
		n--
	}
	return n
}

// Child returns the rank of child j, which is the same in every tree.
func (g Graph) Child(j int) int { return g.To(j) }

// FirstChild numbers the children that this rank has in all trees on and on, root after root in the
// order of its distance from them, and returns the first one's number in root's tree. A node v of a
// tree has as many children as v has trailing zeros, at most; summed below v that makes v-1 less
// the ones in the binary form of v-1.
func (g Graph) FirstChild(root int) int {
	v := g.from(root)
	if v == 0 {
		return 0
	}
	return g.Rounds() + v - 1 - bits.OnesCount(uint(v-1))
}

// AllChildren returns how many numbers FirstChild takes: about one a tree.
func (g Graph) AllChildren() int {
	return g.Rounds() + g.Size - 1 - bits.OnesCount(uint(g.Size-1))
}

// ChildIndex returns which child of this rank in root's tree a rank is, or -1.
func (g Graph) ChildIndex(root, rank int) int {
	d := (g.Order.place(rank) - g.Order.place(g.Rank) + g.Size) % g.Size
	if d == 0 || d&(d-1) != 0 {
		return -1
	}
	if j := bits.TrailingZeros(uint(d)); j < g.Children(root) {
		return j
	}
	return -1
}

// Neighbours returns the ranks that this one exchanges control messages with: the ranks 2^k before and after it in the
// ring, each once, from the nearest to the farthest; then the ranks with the numbers next to its own, since the roots
// of a chain take turns.
func (g Graph) Neighbours() []int {
	var out []int
	seen := map[int]bool{g.Rank: true}
	add := func(ranks ...int) {
		for _, p := range ranks {
			if !seen[p] {
				seen[p] = true
				out = append(out, p)
			}
		}
	}
	for k := range g.Rounds() {
		add(g.To(k), g.From(k))
	}
	if g.Order != nil {
		add((g.Rank+1)%g.Size, (g.Rank+g.Size-1)%g.Size)
	}
	return out
}

// Distances returns how far the neighbours of a rank are from it, modulo size and ascending. They
// are the same for every rank.
func Distances(size int) []int {
	var list []int
	for d := 1; d < size; d++ {
		if bits.OnesCount(uint(d)) == 1 || bits.OnesCount(uint(size-d)) == 1 {
			list = append(list, d)
		}
	}
	return list
}
