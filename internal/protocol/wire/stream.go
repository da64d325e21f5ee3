package wire

import (
	"encoding/binary"
	"math"
)

// StreamSize is the length of the header before a shard in a stream, in bytes.
const StreamSize = 64

// StreamAlign is the multiple to which header and shard in a stream are padded, so that
// no element straddles the end of a ring.
const StreamAlign = 64

// Stream is the header before a shard that one rank streams to its owner in a direct Reduce-Scatter or Reduce. The
// header is padded to StreamAlign. The shard, or each part that the owner still needs, is padded as well. A rank that
// gets nothing of the result gets a header alone.
//
//	 0  version  u8
//	 1  type     u8   element type, see internal/reduce
//	 2  op       u8   reduction
//	 3  call     u4, u4  collective and reduction of the Call that the operation is a step of; 0: it is none
//	 4  of       u32  Target: the ranks that contribute
//	 8  seq      u32  operation number in the reduce lane
//	12  to       u32  Target
//	16  bytes    u64  of the shard
//	24  factor   f64  of a premultiplied sum
//	32  from     u32  rank 0 announces: from this operation on through the switch,
//	36  epoch    u32  which all ranks have joined under this number; 0: no such news
//	40  number   u32  of the Call
//	44  reserved u32
//	48  root     u16  of the Call
//	50  bytes    u48  of the Call
//	56  factor   f64  of the Call
type Stream struct {
	Type   uint8
	Op     uint8
	Of     Target
	Seq    uint32
	To     Target
	Bytes  uint64
	Factor float64
	From   uint32
	Epoch  uint32
	Call   Call
}

// Put writes the header to b, which must hold StreamSize bytes.
func (s *Stream) Put(b []byte) {
	clear(b[:StreamSize])
	b[0], b[1], b[2] = Version, s.Type, s.Op
	binary.BigEndian.PutUint32(b[4:], uint32(s.Of))
	binary.BigEndian.PutUint32(b[8:], s.Seq)
	binary.BigEndian.PutUint32(b[12:], uint32(s.To))
	binary.BigEndian.PutUint64(b[16:], s.Bytes)
	binary.BigEndian.PutUint64(b[24:], math.Float64bits(s.Factor))
	binary.BigEndian.PutUint32(b[32:], s.From)
	binary.BigEndian.PutUint32(b[36:], s.Epoch)
	b[3] = byte(s.Call.Collective)<<4 | s.Call.Op&0xf
	binary.BigEndian.PutUint32(b[40:], s.Call.Number)
	binary.BigEndian.PutUint64(b[48:], s.Call.placed())
	binary.BigEndian.PutUint64(b[56:], math.Float64bits(s.Call.Factor))
}

// Get reads the header from b. It returns ErrShort or ErrVersion.
func (s *Stream) Get(b []byte) error {
	if len(b) < StreamSize {
		return ErrShort
	}
	if b[0] != Version {
		return ErrVersion
	}
	s.Type, s.Op = b[1], b[2]
	s.Of = Target(binary.BigEndian.Uint32(b[4:]))
	s.Seq = binary.BigEndian.Uint32(b[8:])
	s.To = Target(binary.BigEndian.Uint32(b[12:]))
	s.Bytes = binary.BigEndian.Uint64(b[16:])
	s.Factor = math.Float64frombits(binary.BigEndian.Uint64(b[24:]))
	s.From, s.Epoch = binary.BigEndian.Uint32(b[32:]), binary.BigEndian.Uint32(b[36:])
	s.Call = Call{
		Collective: Collective(b[3] >> 4), Op: b[3] & 0xf, Number: binary.BigEndian.Uint32(b[40:]),
		Factor: math.Float64frombits(binary.BigEndian.Uint64(b[56:])),
	}
	s.Call.setPlaced(binary.BigEndian.Uint64(b[48:]))
	return nil
}

// Equal reports whether two headers describe the same operation. News does not count.
func (s *Stream) Equal(o *Stream) bool {
	return s.Type == o.Type && s.Op == o.Op && s.Seq == o.Seq && s.Of == o.Of && s.To == o.To && s.Bytes == o.Bytes &&
		math.Float64bits(s.Factor) == math.Float64bits(o.Factor) && s.Call.Equal(&o.Call)
}
