package wire

import (
	"encoding/binary"
	"fmt"
)

// DataSize is the length of a datagram's header in bytes.
const DataSize = 32

// DataMagic opens every datagram: "mc".
const DataMagic = 0x6d63

// Offsets of the fields that a socket filter tests before a datagram takes
// room in a queue.
const (
	DataOffMagic = 0
	DataOffJob   = 4 // 8 bytes
	DataOffRoot  = 12
)

// Collective says which operation a datagram or a barrier belongs to.
type Collective uint8

// The collectives that the multicast protocol carries.
const (
	Barrier Collective = iota + 1
	Broadcast
	Allgather
	// Those of the reduce lane, in a Call.
	ReduceScatter
	Reduce
)

// String returns the collective's name as the command line spells it.
func (c Collective) String() string {
	switch c {
	case Barrier:
		return "barrier"
	case Broadcast:
		return "broadcast"
	case Allgather:
		return "allgather"
	case ReduceScatter:
		return "reduce-scatter"
	case Reduce:
		return "reduce"
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// Data is the header of a multicast datagram. The payload that follows is the
// chunk number PSN of the shard of rank Root in operation Seq.
//
//	 0  magic      u16  DataMagic
//	 2  version    u4, collective u4
//	 3  subgroup   u8   multicast tree the datagram was sent on
//	 4  job        u64  communicator, drawn at random by rank 0
//	12  root       u16  rank that owns this shard, and sent it
//	14  call       u16  digest of the Call that the operation is a step of; 0: it is none
//	16  seq        u32  operation number in the communicator
//	20  psn        u32  number of the chunk in the root's shard
//	24  bytes      u32  shard size, low 32 bits
//	28  arena      u32  eager operations: where the operation lies in the arena
type Data struct {
	Collective Collective
	Subgroup   uint8
	Root       uint16
	Call       uint16
	Job        uint64
	Seq        uint32
	PSN        uint32
	Bytes      uint32
	Arena      uint32
}

// DataOf returns the header under which the chunk that follows a message is placed. It carries no
// job, and the subgroup says which message it was.
func DataOf(m *Control) Data {
	d := Data{Collective: m.Collective, Root: m.Root, Call: m.Digest, Seq: m.Seq, PSN: m.PSN, Bytes: m.Count}
	if m.Kind == Relay {
		d.Subgroup, d.Arena = 1+m.Round&1, m.Arena
	}
	return d
}

// IsMulticast reports whether the header is a datagram's, not made from a message.
func (d *Data) IsMulticast() bool { return d.Job != 0 }

// IsRepair reports whether the header was made from a Repair.
func (d *Data) IsRepair() bool { return d.Job == 0 && d.Subgroup == 0 }

// IsRelay reports whether the header was made from a Relay.
func (d *Data) IsRelay() bool { return d.Job == 0 && d.Subgroup > 0 }

// IsProbe reports whether it was made from a Relay of a chunk that its root has multicast as well.
func (d *Data) IsProbe() bool { return d.Job == 0 && d.Subgroup == 2 }

// Put writes the header to b, which must hold DataSize bytes.
func (d *Data) Put(b []byte) {
	_ = b[DataSize-1]
	binary.BigEndian.PutUint16(b[0:], DataMagic)
	b[2] = Version<<4 | byte(d.Collective)&0xf
	b[3] = d.Subgroup
	binary.BigEndian.PutUint64(b[4:], d.Job)
	binary.BigEndian.PutUint16(b[12:], d.Root)
	binary.BigEndian.PutUint16(b[14:], d.Call)
	binary.BigEndian.PutUint32(b[16:], d.Seq)
	binary.BigEndian.PutUint32(b[20:], d.PSN)
	binary.BigEndian.PutUint32(b[24:], d.Bytes)
	binary.BigEndian.PutUint32(b[28:], d.Arena)
}

// Get reads the header from b. It returns ErrShort, ErrMagic, ErrVersion or ErrField and leaves d
// undefined when b does not start with one. It does not allocate, so it may be called for every
// datagram.
func (d *Data) Get(b []byte) error {
	if len(b) < DataSize {
		return ErrShort
	}
	if binary.BigEndian.Uint16(b) != DataMagic {
		return ErrMagic
	}
	if b[2]>>4 != Version {
		return ErrVersion
	}
	d.Collective = Collective(b[2] & 0xf)
	if d.Collective < Barrier || d.Collective > Allgather {
		return ErrField
	}
	d.Subgroup = b[3]
	d.Job = binary.BigEndian.Uint64(b[4:])
	d.Root = binary.BigEndian.Uint16(b[12:])
	d.Call = binary.BigEndian.Uint16(b[14:])
	d.Seq = binary.BigEndian.Uint32(b[16:])
	d.PSN = binary.BigEndian.Uint32(b[20:])
	d.Bytes = binary.BigEndian.Uint32(b[24:])
	d.Arena = binary.BigEndian.Uint32(b[28:])
	return nil
}
