package wire

import "strconv"

// Target says which ranks get the result of a reduction. Zero is a Reduce-Scatter: every rank gets its shard. 1 + r is
// a Reduce: rank r alone gets everything.
type Target uint32

// ToRank is the target of a Reduce to a rank.
func ToRank(root int) Target { return Target(root) + 1 } // at most 1<<15 ranks

// Root returns the rank that alone gets the result; it is not ok if every rank gets a shard.
func (t Target) Root() (root int, ok bool) { return int(t) - 1, t != 0 }

// Includes reports whether a rank gets anything.
func (t Target) Includes(rank int) bool {
	root, one := t.Root()
	return !one || rank == root
}

// String names the operation.
func (t Target) String() string {
	if root, one := t.Root(); one {
		return "reduce to rank " + strconv.Itoa(root)
	}
	return "reduce-scatter"
}
