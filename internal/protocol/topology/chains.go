package topology

// Chains splits Size roots into M contiguous chains with lengths that differ by one at most (Khalilov et al., SC24,
// IV-A and appendix A, but M need not divide P). The roots of a chain multicast one after another, the chains beside
// each other; 1 <= M <= Size.
type Chains struct {
	Size, M int
	each    int // roots of a chain
	longer  int // chains, the first ones, that have one more
}

// NewChains splits so many roots into m chains.
func NewChains(size, m int) Chains {
	return Chains{Size: size, M: m, each: size / m, longer: size % m}
}

// Of returns the chain of a root. It is asked for every chunk, and a division takes longer than all
// else there, so what most have does without: one chain, or one for each root.
func (c Chains) Of(root int) int {
	if c.M == 1 {
		return 0
	}
	if c.M == c.Size {
		return root
	}
	if end := c.longer * (c.each + 1); root >= end {
		return c.longer + (root-end)/c.each
	}
	return root / (c.each + 1)
}

// Head returns the first root of a chain; Head(M) is Size.
func (c Chains) Head(chain int) int { return chain*c.each + min(chain, c.longer) }
