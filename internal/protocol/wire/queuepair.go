package wire

import "encoding/binary"

// QueuePairSize is the length of a QueuePair in bytes.
const QueuePairSize = 56

// queuePairMagic opens it: "mcqp".
const queuePairMagic = 0x6d637170

// QueuePair is the first message of either rank on the TCP connection of a stream with bytes that go through RDMA
// devices. It names the queue pair that the other rank is to connect its own to, and the ring that the other rank is to
// write to. Once a rank has connected its queue pair to the other's it says Connected, and nothing more.
//
//	 0  magic    u32
//	 4  version  u8
//	 5  reserved u24
//	 8  number   u32  of the queue pair, 24 bits
//	12  psn      u32  of its first packet, 24 bits
//	16  mtu      u32  of its port, in bytes
//	20  key      u32  of the ring
//	24  ring     u64  its address
//	32  bytes    u32  of the ring
//	36  lid      u16  of its port, on InfiniBand, else 0
//	38  reserved u16
//	40  gid      16 bytes
type QueuePair struct {
	Number, PSN, MTU uint32
	Key              uint32
	Ring             uint64
	Bytes            uint32
	LID              uint16
	GID              [16]byte
}

// Connected is the byte with which a rank says that what the other one writes will arrive.
const Connected byte = 1

// Put writes it to b, which must hold QueuePairSize bytes.
func (q *QueuePair) Put(b []byte) {
	clear(b[:QueuePairSize])
	binary.BigEndian.PutUint32(b[0:], queuePairMagic)
	b[4] = Version
	binary.BigEndian.PutUint32(b[8:], q.Number)
	binary.BigEndian.PutUint32(b[12:], q.PSN)
	binary.BigEndian.PutUint32(b[16:], q.MTU)
	binary.BigEndian.PutUint32(b[20:], q.Key)
	binary.BigEndian.PutUint64(b[24:], q.Ring)
	binary.BigEndian.PutUint32(b[32:], q.Bytes)
	binary.BigEndian.PutUint16(b[36:], q.LID)
	copy(b[40:], q.GID[:])
}

// Get reads it from b. Its errors are those of Data.Get.
func (q *QueuePair) Get(b []byte) error {
	if len(b) < QueuePairSize {
		return ErrShort
	}
	if binary.BigEndian.Uint32(b) != queuePairMagic {
		return ErrMagic
	}
	if b[4] != Version {
		return ErrVersion
	}
	q.Number, q.PSN, q.MTU = binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:]),
		binary.BigEndian.Uint32(b[16:])
	if q.Number >= 1<<24 || q.PSN >= 1<<24 {
		return ErrField
	}
	q.Key, q.Ring, q.Bytes = binary.BigEndian.Uint32(b[20:]), binary.BigEndian.Uint64(b[24:]),
		binary.BigEndian.Uint32(b[32:])
	q.LID = binary.BigEndian.Uint16(b[36:])
	copy(q.GID[:], b[40:])
	return nil
}
