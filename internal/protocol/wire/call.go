package wire

import "math"

// Call is the call of a rank's caller, where the ranks of a host are a node. Operations of columns and nodes are steps
// of a call, and may be alike where calls differ, say by the root. So steps carry the call, in terms of the whole
// group, and the ranks that share a step compare it. An operation that is no step has the zero Call.
type Call struct {
	Collective Collective
	Op         uint8  // of a reduction
	Root       uint16 // of a Broadcast or Reduce
	Number     uint32 // of all calls on one of the two lanes
	Bytes      uint64 // of a shard; below 1<<48
	Factor     float64
}

// IsNone reports whether an operation is no step of a call.
func (c *Call) IsNone() bool { return c.Collective == 0 }

// Equal reports whether two calls are the same.
func (c *Call) Equal(o *Call) bool {
	return c.Collective == o.Collective && c.Op == o.Op && c.Root == o.Root && c.Number == o.Number &&
		c.Bytes == o.Bytes &&
		math.Float64bits(c.Factor) == math.Float64bits(o.Factor)
}

// Digest is for headers with no room for a call. Calls that differ in nothing but the root have different
// ones; of others that differ, one pair in 65536 has not.
func (c *Call) Digest() uint16 {
	if c.IsNone() {
		return 0
	}
	h := uint64(c.Collective)<<40 | uint64(c.Op)<<32 | uint64(c.Number)
	for _, v := range [...]uint64{c.Bytes, math.Float64bits(c.Factor)} {
		h = (h ^ h>>29) * 0x9e3779b97f4a7c15
		h ^= v
	}
	h = (h ^ h>>32) * 0xd1b54a32d192ed03
	return uint16(h>>48) ^ c.Root
}

// placed is root and bytes in one number, as messages have them.
func (c *Call) placed() uint64 { return uint64(c.Root)<<48 | c.Bytes&(1<<48-1) }

func (c *Call) setPlaced(v uint64) { c.Root, c.Bytes = uint16(v>>48), v&(1<<48-1) }

// SetCall puts a call into a Compare. There is no room for how it reduces, which operations of the gather
// lane do not.
func (c *Control) SetCall(k *Call) {
	c.Round, c.PSN = uint8(k.Collective), k.Number
	c.Count, c.Arena = uint32(k.placed()>>32), uint32(k.placed())
}

// Call returns the call that a Compare has.
func (c *Control) Call() Call {
	k := Call{Collective: Collective(c.Round), Number: c.PSN}
	k.setPlaced(uint64(c.Count)<<32 | uint64(c.Arena))
	return k
}
