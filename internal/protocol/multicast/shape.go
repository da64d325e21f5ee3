package multicast

import "github.com/torch-mcast/torch-mcast/internal/protocol/wire"

// chunkRange is chunks [from, to) of a shard.
type chunkRange struct{ shard, from, to int }

// shape is the geometry of an operation: how its buffer falls into shards and a shard into chunks.
// But for the place of the shards it depends on nothing but the operation, the number of ranks and the
// chunk size, so every rank computes the same one.
type shape struct {
	coll   wire.Collective
	root   int   // the only root of a Broadcast
	bytes  int   // N, of one shard
	shards int   // P, or 1 for a Broadcast
	chunks int   // K, of one shard; at least 1, so that even an empty shard is announced
	chunk  int   // bytes of a chunk; the last of a shard may be shorter
	stride int   // bytes from one slot of the buffer to the next
	slots  []int // of each shard; nil: in their order
	call   wire.Call
	digest uint16 // of the call; that alone is known before the operation is posted
}

func shapeOf(o Op, size, chunk int) shape {
	s := shape{
		coll: o.Collective, bytes: o.Bytes, shards: size, chunk: chunk, stride: o.stride(), call: o.Call,
		digest: o.Call.Digest(),
	}
	switch o.Collective {
	case wire.Broadcast:
		s.root, s.shards = o.Root, 1
	case wire.Allgather:
		s.slots = o.Slots
	}
	s.chunks = max(1, (o.Bytes+chunk-1)/chunk)
	return s
}

// opOf returns the operation that a header belongs to, as far as the header tells.
func opOf(coll wire.Collective, root uint16, bytes int) Op {
	o := Op{Collective: coll, Bytes: bytes}
	if coll == wire.Broadcast {
		o.Root = int(root)
	}
	return o
}

// called returns the operation of a shape, but for whether it is Sync.
func (s *shape) called() Op {
	return Op{Collective: s.coll, Root: s.root, Bytes: s.bytes, Call: s.call}
}

// differs reports whether the operation is another than o, or a step of another call than the one of a digest.
// Datagrams carry the low 32 bits of the size, so only these bits are compared.
func (s *shape) differs(o Op, digest uint16) bool {
	return s.coll != o.Collective || s.root != o.Root || uint32(s.bytes) != uint32(o.Bytes) || s.digest != digest
}

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

// bit returns the number of a chunk among those of all shards, as bitmaps count them.
func (s *shape) bit(shard, psn int) int { return shard*s.chunks + psn }

// all returns the number of chunks of all shards.
func (s *shape) all() int { return s.shards * s.chunks }

// length returns the bytes of chunk psn.
func (s *shape) length(psn int) int { return max(0, min(s.chunk, s.bytes-psn*s.chunk)) }

// span returns the bytes of chunks [from, to) of a shard.
func (s *shape) span(from, to int) int { return max(0, min(s.bytes, to*s.chunk)-from*s.chunk) }

// offset returns where chunk psn of a shard lies in the buffer.
func (s *shape) offset(shard, psn int) int { return s.slot(shard)*s.stride + psn*s.chunk }

// slot returns which slot of the buffer a shard lies in.
func (s *shape) slot(shard int) int {
	if s.slots == nil {
		return shard
	}
	return s.slots[shard]
}

// pack has the shards lie one behind the other, as in the arena.
func (s *shape) pack() { s.stride, s.slots = s.bytes, nil }

// total returns the bytes of all shards.
func (s *shape) total() int { return s.shards * s.bytes }
