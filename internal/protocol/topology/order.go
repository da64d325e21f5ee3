package topology

import "slices"

// Order is the order of ranks in the ring where it differs from the order of their numbers: ranks of a host beside each
// other, so that a ring enters and leaves each host once. All ranks have the same. A nil Order is the order of the
// numbers.
type Order struct{ ranks, places []int }

// NewOrder returns the ring of all ranks in this order; nil if that is the order of their numbers.
func NewOrder(ranks []int) *Order {
	if slices.IsSorted(ranks) {
		return nil
	}
	o := &Order{ranks, make([]int, len(ranks))}
	for place, rank := range ranks {
		o.places[rank] = place
	}
	return o
}

// rank returns who is at a place.
func (o *Order) rank(place int) int {
	if o == nil {
		return place
	}
	return o.ranks[place]
}

// place returns where a rank is.
func (o *Order) place(rank int) int {
	if o == nil {
		return rank
	}
	return o.places[rank]
}
