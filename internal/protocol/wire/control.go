package wire

import (
	"encoding/binary"
	"fmt"
)

// ControlSize is the length of a control message in bytes, payload excluded.
const ControlSize = 32

// MaxPayload bounds the payload of one control message, so that a garbled
// length cannot make a reader wait for, or reserve, gigabytes.
const MaxPayload = 1 << 20

// Kind says what a control message means.
type Kind uint8

// The control messages. Fields not named are zero.
const (
	// Ready is one round of the dissemination barrier (Khalilov et al., SC24, III-C, RNR
	// synchronisation). Seq, Round, Collective, Root, Bytes; peers compare the last three with
	// their own to notice that ranks disagree. Count is 1 if the sender, or a rank that it has heard
	// of in this barrier, wants the operation relayed.
	Ready Kind = iota + 1
	// Activate hands the right to multicast to the next rank of the chain
	// (Khalilov et al., SC24, IV-A). Seq.
	Activate
	// Credit tells the parent in Root's tree that the sender and everybody below it have room for
	// Root's chunks up to PSN (exclusive). Seq, Root, PSN; Count is 1 if one of them wants chunks
	// relayed.
	Credit
	// Fetch asks the left neighbour for Count chunks from PSN of Root's shard.
	// Seq, Root, PSN, Count; Round is a sum of FetchKnown and FetchPushed.
	Fetch
	// Repair answers a Fetch with one chunk, which follows. Seq, Root, PSN,
	// Bytes (of payload).
	Repair
	// Done is the final handshake: the sender holds every chunk of Seq.
	Done
	// Nudge means nothing: its segment tells TCP that the segments before it are lost.
	Nudge
	// Compare names the sender's call: to the right neighbour, where a datagram says otherwise or nothing else would tell,
	// and to a rank that sent a message that does not fit. Seq, Collective, Root, Bytes, as for Ready; the call of the
	// caller in Round, PSN, Count and Arena, see SetCall.
	Compare
	// Begin tells those below the sender in Root's tree that Root has begun to send a serial
	// Broadcast. Seq, Collective, Root, Bytes, as for Ready.
	Begin
	// Relay brings the right neighbour one chunk of a root that does not multicast it; the chunk
	// follows. Seq, Collective, Root, PSN, Count (shard size, low 32 bits), Arena as in Data, Bytes (of
	// payload); Round is 1 if the root has multicast it as well, to see whether that arrives.
	Relay
	// Offer answers a Fetch: Count chunks from PSN of Root's shard lie one behind the other where the sender's
	// RDMA device reads them for who has the key. Seq, Collective, Root, PSN, Count, Bytes (the address), Arena (the key).
	Offer
	// Introduce says how the sender's RDMA device is connected to by the neighbour's, see Introduction. Fabrics that
	// have such devices send it first, and take it themselves.
	Introduce
	kindEnd
)

// What Round of a Fetch says.
const (
	FetchKnown  = 1 // the chunks are known to have been sent; otherwise it is a guess
	FetchPushed = 2 // answer by Repair, from now on as well: the sender of this Fetch cannot read offers
)

var kindNames = [...]string{
	Ready: "ready", Activate: "activate", Credit: "credit", Fetch: "fetch", Repair: "repair", Done: "done", Nudge: "nudge",
	Compare: "compare", Begin: "begin", Relay: "relay", Offer: "offer", Introduce: "introduce",
}

// String returns the name used in docs/project/protocol.md and in transcripts.
func (k Kind) String() string {
	if k >= 1 && k < kindEnd {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Control is a message on the reliable path between two ranks.
//
//	 0  kind       u8
//	 1  version    u4, collective u4
//	 2  round      u8   Ready: round of the barrier; Fetch: flags; Relay: 1 is a probe; Compare: the call's collective
//	 3  reserved   u8   zero
//	 4  root       u16
//	 6  digest     u16  of the Call that the operation is a step of; 0: it is none
//	 8  seq        u32
//	12  psn        u32  Compare: the call's number
//	16  count      u32  Compare: the call's root u16, and bytes u48 up to here ...
//	20  arena      u32  Relay: as in Data; Offer: key; Compare: ... and here
//	24  bytes      u64  Ready: shard size; Repair, Relay: payload that follows; Offer: address
type Control struct {
	Kind       Kind
	Collective Collective
	Round      uint8
	Root       uint16
	Digest     uint16
	Seq        uint32
	PSN        uint32
	Count      uint32
	Arena      uint32
	Bytes      uint64
}

// Put writes the message to b, which must hold ControlSize bytes.
func (c *Control) Put(b []byte) {
	_ = b[ControlSize-1]
	b[0] = byte(c.Kind)
	b[1] = Version<<4 | byte(c.Collective)&0xf
	b[2] = c.Round
	b[3] = 0
	binary.BigEndian.PutUint16(b[4:], c.Root)
	binary.BigEndian.PutUint16(b[6:], c.Digest)
	binary.BigEndian.PutUint32(b[8:], c.Seq)
	binary.BigEndian.PutUint32(b[12:], c.PSN)
	binary.BigEndian.PutUint32(b[16:], c.Count)
	binary.BigEndian.PutUint32(b[20:], c.Arena)
	binary.BigEndian.PutUint64(b[24:], c.Bytes)
}

// Get reads a message from b. It returns ErrShort, ErrVersion or ErrField and
// leaves c undefined when b does not start with one.
func (c *Control) Get(b []byte) error {
	if len(b) < ControlSize {
		return ErrShort
	}
	c.Kind = Kind(b[0])
	if b[1]>>4 != Version {
		return ErrVersion
	}
	c.Collective = Collective(b[1] & 0xf)
	if c.Kind < Ready || c.Kind >= kindEnd || c.Collective > Allgather {
		return ErrField
	}
	c.Round = b[2]
	c.Root = binary.BigEndian.Uint16(b[4:])
	c.Digest = binary.BigEndian.Uint16(b[6:])
	c.Seq = binary.BigEndian.Uint32(b[8:])
	c.PSN = binary.BigEndian.Uint32(b[12:])
	c.Count = binary.BigEndian.Uint32(b[16:])
	c.Arena = binary.BigEndian.Uint32(b[20:])
	c.Bytes = binary.BigEndian.Uint64(b[24:])
	if c.HasChunk() && c.Bytes > MaxPayload {
		return ErrField
	}
	return nil
}

// HasChunk reports whether a chunk follows the message.
func (c *Control) HasChunk() bool { return c.Kind == Repair || c.Kind == Relay }

// Payload returns how many bytes follow the message.
func (c *Control) Payload() int {
	if c.HasChunk() {
		return int(c.Bytes) // Get bounds it by MaxPayload
	}
	return 0
}
