package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

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
