package topology

// Chains splits Size roots into M contiguous chains whose lengths differ by one at most (Khalilov
// et al., SC24, IV-A and appendix A, without its need that M divides P). The roots of a chain
// multicast one after another, the chains beside each other; 1 <= M <= Size.
type Chains struct{ Size, M int }

// Of returns the chain of a root. It is asked for every chunk, and a division takes longer than all
// else there, so what most have does without: one chain, or one for each root.
func (c Chains) Of(root int) int {
	if c.M == 1 {
		return 0
	}
	if c.M == c.Size {
		return root
	}
	q, r := c.Size/c.M, c.Size%c.M
	if root < r*(q+1) {
		return root / (q + 1)
	}
	return r + (root-r*(q+1))/q
}

// Head returns the first root of a chain; Head(M) is Size.
func (c Chains) Head(chain int) int {
	if c.M == 1 {
		return chain * c.Size
	}
	if c.M == c.Size {
		return chain
	}
	q, r := c.Size/c.M, c.Size%c.M
	return chain*q + min(chain, r)
}
