package wire

import "encoding/binary"

// ProbeSize is the length of a probe's header in bytes.
const ProbeSize = 18

// probeMagic opens every probe: "mp".
const probeMagic = 0x6d70

// Probe is the header of a datagram with which ranks find out, before the first operation, what the
// paths between them carry. What seals it follows, with a secret, then zeros, up to the size that it tries.
//
//	 0  magic    u16
//	 2  version  u8
//	 3  unicast  u8   1: sent to this rank alone, 0: by multicast
//	 4  job      u64
//	12  rank     u16  who sent it
//	14  packet   u32  bytes of the packet that it travels in, IP's and UDP's headers included
type Probe struct {
	Unicast bool
	Job     uint64
	Rank    uint16
	Packet  uint32
}

// Put writes the header to b, which must hold ProbeSize bytes.
func (p *Probe) Put(b []byte) {
	_ = b[ProbeSize-1]
	binary.BigEndian.PutUint16(b[0:], probeMagic)
	b[2], b[3] = Version, 0
	if p.Unicast {
		b[3] = 1
	}
	binary.BigEndian.PutUint64(b[4:], p.Job)
	binary.BigEndian.PutUint16(b[12:], p.Rank)
	binary.BigEndian.PutUint32(b[14:], p.Packet)
}

// Get reads a header from b. Its errors are those of Data.Get.
func (p *Probe) Get(b []byte) error {
	if len(b) < ProbeSize {
		return ErrShort
	}
	if binary.BigEndian.Uint16(b) != probeMagic {
		return ErrMagic
	}
	if b[2] != Version {
		return ErrVersion
	}
	if b[3] > 1 {
		return ErrField
	}
	p.Unicast = b[3] == 1
	p.Job = binary.BigEndian.Uint64(b[4:])
	p.Rank = binary.BigEndian.Uint16(b[12:])
	p.Packet = binary.BigEndian.Uint32(b[14:])
	return nil
}
