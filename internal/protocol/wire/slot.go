package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// SlotSize is the length of the header of a slot datagram in bytes.
const SlotSize = 32

// SlotMagic opens every slot datagram: "ms".
const SlotMagic = 0x6d73

// SlotKind says what a slot datagram carries.
type SlotKind uint8

// The slot datagrams, between a member of a job and its aggregation node.
const (
	// Contribution carries a member's elements of a slot to the node.
	Contribution SlotKind = iota + 1
	// Result carries their reduction to the rank that owns it, or to the
	// node below through which that rank is reached.
	Result
	// Allowance tells a member how far it may send, and which contributions are missing. A SlotCredit follows.
	Allowance
	// Status tells the node which results a member holds. A SlotStatus follows.
	Status
	// Kept stands for contributions of the slots' owner to some slots in a row, which it
	// adds to the results itself. A SlotKept follows.
	Kept
	// Echo asks the node for one without payload in return, and if it has one itself, for another as
	// long as itself: so a member learns which sizes pass, and in which direction.
	Echo
	slotKindEnd
)

var slotKindNames = [...]string{
	Contribution: "contribution", Result: "result", Allowance: "allowance", Status: "status", Kept: "kept", Echo: "echo",
}

// String returns the name used in docs/project/protocol.md.
func (k SlotKind) String() string {
	if k >= 1 && k < slotKindEnd {
		return slotKindNames[k]
	}
	return fmt.Sprintf("slot-kind(%d)", uint8(k))
}

// Slot is the header of a datagram of the in-network Reduce-Scatter.
//
//	 0  magic      u16  SlotMagic
//	 2  version    u4, kind u4
//	 3  type       u8   element type, see internal/reduce
//	 4  op         u8   reduction
//	 5  stripe     u8   worker of the node
//	 6  member     u16  who contributes, or whom a result or allowance is for: its number at this node
//	 8  job        u64  drawn by the node when the job was admitted
//	16  slot       u32  number of the slot in the stripe; the first of kept ones; base of a
//	                    SlotCredit, have of a SlotStatus; in the answer to an echo how many bytes
//	                    of payload that had
//	20  owner      u16  rank that owns the result
//	22  shape      u14  of the operation: members that call something else are told
//	    last       u1   the last slot of an operation in the stripe; the last of kept ones is
//	    wide       u1   elements are partial results, in the accumulator type
//	24  factor     f64  of a premultiplied sum
//
// Type, op, owner, shape, last, wide and factor are of contributions, kept ones included, and
// results; otherwise zero.
type Slot struct {
	Kind   SlotKind
	Type   uint8
	Op     uint8
	Stripe uint8
	Last   bool
	Wide   bool
	Member uint16
	Owner  uint16
	Shape  uint16 // below MaxSlotShape
	Slot   uint32
	Job    uint64
	Factor float64
}

// MaxSlotShape bounds Slot.Shape.
const MaxSlotShape = 1 << 14

// Put writes the header to b, which must hold SlotSize bytes.
func (s *Slot) Put(b []byte) {
	_ = b[SlotSize-1]
	binary.BigEndian.PutUint16(b[0:], SlotMagic)
	b[2] = Version<<4 | byte(s.Kind)&0xf
	b[3], b[4], b[5] = s.Type, s.Op, s.Stripe
	binary.BigEndian.PutUint16(b[6:], s.Member)
	binary.BigEndian.PutUint64(b[8:], s.Job)
	binary.BigEndian.PutUint32(b[16:], s.Slot)
	binary.BigEndian.PutUint16(b[20:], s.Owner)
	shape := s.Shape << 2
	if s.Last {
		shape |= 2
	}
	if s.Wide {
		shape |= 1
	}
	binary.BigEndian.PutUint16(b[22:], shape)
	binary.BigEndian.PutUint64(b[24:], math.Float64bits(s.Factor))
}

// Get reads the header from b. It returns ErrShort, ErrMagic, ErrVersion or
// ErrField and leaves s undefined when b does not start with one.
func (s *Slot) Get(b []byte) error {
	if len(b) < SlotSize {
		return ErrShort
	}
	if binary.BigEndian.Uint16(b) != SlotMagic {
		return ErrMagic
	}
	if b[2]>>4 != Version {
		return ErrVersion
	}
	s.Kind = SlotKind(b[2] & 0xf)
	if s.Kind < Contribution || s.Kind >= slotKindEnd {
		return ErrField
	}
	s.Type, s.Op, s.Stripe = b[3], b[4], b[5]
	s.Member = binary.BigEndian.Uint16(b[6:])
	s.Job = binary.BigEndian.Uint64(b[8:])
	s.Slot = binary.BigEndian.Uint32(b[16:])
	s.Owner = binary.BigEndian.Uint16(b[20:])
	shape := binary.BigEndian.Uint16(b[22:])
	s.Shape, s.Last, s.Wide = shape>>2, shape&2 != 0, shape&1 != 0
	s.Factor = math.Float64frombits(binary.BigEndian.Uint64(b[24:]))
	return nil
}

// SlotSet is a set of slots near each other: bit i of Bits, least significant
// bit of the first byte first, stands for slot From+i.
type SlotSet struct {
	From uint32
	Bits []byte
}

// MaxSlotSet is how many bytes the bits of a SlotSet take at most, so that
// every datagram with one fits a path of 1500 bytes.
const MaxSlotSet = 1024

// SlotCredit is the body of an Allowance.
//
//	 0  base     u32  all slots below are free for good: their results are acknowledged
//	 4  limit    u32  the member may send slots below
//	 8  from     u32  first slot of the bits
//	12  owed     u32  1: results were sent before this that the member has not said to hold
//	16  bits          slots without a contribution of this member
type SlotCredit struct {
	Base, Limit uint32
	Owed        bool
	Missing     SlotSet
}

// SlotStatus is the body of a Status.
//
//	 0  have     u32  every result for this member in slots below is held
//	 4  next     u32  first slot that the member has never sent
//	 8  poll     u32  1: answer with an Allowance, and send again the results that are not held
//	12  heard    u32  1: an Allowance has come since the poll before
//	16  bits          slots from have on with a result that is held
type SlotStatus struct {
	Have, Next uint32
	Poll       bool
	Heard      bool
	Held       []byte
}

// SlotKept is the body of a Kept.
//
//	0  slots    u32  how many, from that in the header on
//	4  bytes    u32  of the results of all, which are as long as chunks are but for the last
type SlotKept struct{ Slots, Bytes uint32 }

// SlotKeptSize is the length of a SlotKept in bytes.
const SlotKeptSize = 8

// Put writes the body to b, which must have room for SlotKeptSize bytes, and returns how long it
// is.
func (k *SlotKept) Put(b []byte) int {
	binary.BigEndian.PutUint32(b[0:], k.Slots)
	binary.BigEndian.PutUint32(b[4:], k.Bytes)
	return SlotKeptSize
}

// Get reads a body. It returns ErrShort or ErrField.
func (k *SlotKept) Get(b []byte) error {
	switch {
	case len(b) < SlotKeptSize:
		return ErrShort
	case len(b) > SlotKeptSize:
		return ErrField
	}
	k.Slots, k.Bytes = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	return nil
}

// SlotBodySize is the length of a SlotCredit or SlotStatus without bits, in bytes.
const SlotBodySize = 16

// Put writes the body to b, which must have room for SlotBodySize+MaxSlotSet
// bytes, and returns how long it is.
func (c *SlotCredit) Put(b []byte) int {
	binary.BigEndian.PutUint32(b[0:], c.Base)
	binary.BigEndian.PutUint32(b[4:], c.Limit)
	binary.BigEndian.PutUint32(b[8:], c.Missing.From)
	binary.BigEndian.PutUint32(b[12:], flag(c.Owed))
	return SlotBodySize + copy(b[SlotBodySize:], c.Missing.Bits)
}

// Get reads a body. The bits stay in b. It returns ErrShort or ErrField.
func (c *SlotCredit) Get(b []byte) error {
	bits, err := slotBits(b)
	if err != nil {
		return err
	}
	owed := binary.BigEndian.Uint32(b[12:])
	if owed > 1 {
		return ErrField
	}
	c.Base, c.Limit, c.Owed = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), owed == 1
	c.Missing = SlotSet{binary.BigEndian.Uint32(b[8:]), bits}
	return nil
}

// Put writes the body to b, which must have room for SlotBodySize+MaxSlotSet
// bytes, and returns how long it is.
func (s *SlotStatus) Put(b []byte) int {
	binary.BigEndian.PutUint32(b[0:], s.Have)
	binary.BigEndian.PutUint32(b[4:], s.Next)
	binary.BigEndian.PutUint32(b[8:], flag(s.Poll))
	binary.BigEndian.PutUint32(b[12:], flag(s.Heard))
	return SlotBodySize + copy(b[SlotBodySize:], s.Held)
}

// Get reads a body. The bits stay in b. It returns ErrShort or ErrField.
func (s *SlotStatus) Get(b []byte) error {
	bits, err := slotBits(b)
	if err != nil {
		return err
	}
	poll, heard := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	if poll > 1 || heard > 1 {
		return ErrField
	}
	s.Have, s.Next, s.Poll, s.Heard = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), poll == 1, heard == 1
	s.Held = bits
	return nil
}

func flag(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

func slotBits(b []byte) ([]byte, error) {
	switch {
	case len(b) < SlotBodySize:
		return nil, ErrShort
	case len(b) > SlotBodySize+MaxSlotSet:
		return nil, ErrField
	}
	return b[SlotBodySize:], nil
}

// Len returns how many slots the bits cover.
func (s *SlotSet) Len() int { return 8 * len(s.Bits) }

// Count returns how many slots the set has.
func (s *SlotSet) Count() (n int) {
	for _, b := range s.Bits {
		n += bits.OnesCount8(b)
	}
	return n
}

// Has reports whether the slot From+i is in the set.
func (s *SlotSet) Has(i int) bool { return s.Bits[i>>3]&(1<<(i&7)) != 0 }
