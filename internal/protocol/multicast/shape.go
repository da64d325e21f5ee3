package multicast

import (
	"math/bits"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// shape is the geometry of an operation: how its buffer falls into shards and
// a shard into chunks. It depends on nothing but the operation, the number of
// ranks and the chunk size, so every rank computes the same one.
type shape struct {
	coll   wire.Collective
	root   int // the only root of a Broadcast
	bytes  int // N, of one shard
	shards int // P, or 1 for a Broadcast
	chunks int // K, of one shard; at least 1, so that even an empty shard is announced
}

func shapeOf(op Op, size, chunk int) shape {
	s := shape{coll: op.Collective, bytes: op.Bytes, shards: size}
	if op.Collective == wire.Broadcast {
		s.root, s.shards = op.Root, 1
	}
	s.chunks = max(1, (op.Bytes+chunk-1)/chunk)
	return s
}

// op returns the operation of a shape, but for whether it is Sync.
func (s *shape) op() Op { return Op{Collective: s.coll, Root: s.root, Bytes: s.bytes} }

// shard returns the index of root's shard in the buffer, or -1 if root has none.
func (s *shape) shard(root int) int {
	if s.coll != wire.Broadcast {
		return root
	}
	if root != s.root {
		return -1
	}
	return 0
}

// rootOf is the inverse of shard.
func (s *shape) rootOf(shard int) int {
	if s.coll == wire.Broadcast {
		return s.root
	}
	return shard
}

// length returns the bytes of chunk psn, the last of a shard being shorter.
func (s *shape) length(psn, chunk int) int {
	return max(0, min(chunk, s.bytes-psn*chunk))
}

// offset returns where chunk psn of a shard lies in the buffer.
func (s *shape) offset(shard, psn, chunk int) int { return shard*s.bytes + psn*chunk }

// total returns the bytes of the whole buffer.
func (s *shape) total() int { return s.shards * s.bytes }

// topology is the graph that control messages use: rank r is joined to
// r ± 2^k mod P. The dissemination barrier, the credit tree of every root, the
// fetch ring and the activation chains all run on its O(log P) edges a rank.
type topology struct{ rank, size int }

func (t topology) left() int  { return (t.rank + t.size - 1) % t.size }
func (t topology) right() int { return (t.rank + 1) % t.size }

// rounds returns the number of rounds of the dissemination barrier.
func (t topology) rounds() int { return bits.Len(uint(t.size - 1)) }

// to and from are the peers of a round of the barrier.
func (t topology) to(round int) int   { return (t.rank + 1<<round) % t.size }
func (t topology) from(round int) int { return (t.rank + t.size - 1<<round) % t.size }

// parent returns the next rank towards root in root's binomial tree. Numbered
// from the root, the parent of v is v without its lowest bit.
func (t topology) parent(root int) int {
	v := (t.rank - root + t.size) % t.size
	return (root + v&(v-1)) % t.size
}

// children returns how many children this rank has in root's tree; child j is
// rank + 2^j.
func (t topology) children(root int) int {
	v := (t.rank - root + t.size) % t.size
	n := t.rounds()
	if v != 0 {
		n = bits.TrailingZeros(uint(v))
	}
	for n > 0 && v+1<<(n-1) >= t.size {
		n--
	}
	return n
}

// firstChild numbers the children that this rank has in all trees on and on,
// root after root in the order of its distance from them, and returns the first
// one's number in root's tree. A node v of a tree has as many children as v has
// trailing zeros, at most; below v that makes v-1 less the ones of v-1 in all.
func (t topology) firstChild(root int) int {
	v := (t.rank - root + t.size) % t.size
	if v == 0 {
		return 0
	}
	return t.rounds() + v - 1 - bits.OnesCount(uint(v-1))
}

// allChildren returns how many numbers firstChild takes: about one a tree.
func (t topology) allChildren() int {
	return t.rounds() + t.size - 1 - bits.OnesCount(uint(t.size-1))
}

// childIndex returns which child of this rank in root's tree a rank is, or -1.
func (t topology) childIndex(root, rank int) int {
	d := (rank - t.rank + t.size) % t.size
	if d == 0 || d&(d-1) != 0 {
		return -1
	}
	if j := bits.TrailingZeros(uint(d)); j < t.children(root) {
		return j
	}
	return -1
}

// Neighbours returns the ranks that a rank exchanges control messages with:
// rank ± 2^k mod size, each once, ascending distance.
func Neighbours(rank, size int) []int {
	t := topology{rank, size}
	var out []int
	seen := map[int]bool{rank: true}
	for k := 0; k < t.rounds(); k++ {
		for _, p := range []int{t.to(k), t.from(k)} {
			if !seen[p] {
				seen[p] = true
				out = append(out, p)
			}
		}
	}
	return out
}

// chains splits the ranks into m contiguous chains whose lengths differ by one
// at most (Khalilov et al., SC24, IV-A and appendix A, without its need that m divides P).
type chains struct{ size, m int }

// of returns the chain of a rank.
func (c chains) of(rank int) int {
	q, r := c.size/c.m, c.size%c.m
	if rank < r*(q+1) {
		return rank / (q + 1)
	}
	return r + (rank-r*(q+1))/q
}

// head returns the first rank of a chain; head(m) is size.
func (c chains) head(chain int) int {
	q, r := c.size/c.m, c.size%c.m
	return chain*q + min(chain, r)
}
