// Package seal makes and opens datagrams of senders that know a key, so that receivers can tell forged ones:
// AES-256-GCM (NIST SP 800-38D) with a counter that travels and never comes again, and the upper half of the datagram's
// own number, which does not travel (docs/decisions/0067-gcm.md).
//
// Behind a datagram's header is a trailer of Kind.Size bytes, then the payload:
//
//	counter  u64      of the sender's datagrams under this key: with the sender's number it is the nonce
//	tag      16 bytes over nonce, header, number and payload
//
// A Checksum's trailer is the CRC32C of header and payload alone: it tells bytes that have changed by accident.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/torch-mcast/torch-mcast/internal/coredump"
)

// Kind is what a Sealer does to datagrams.
type Kind int

const (
	// Tags has payloads travel in clear, with a tag.
	Tags Kind = iota + 1
	// Encryption hides payloads, and has a tag as well. Headers travel in clear.
	Encryption
	// Checksum has no key, and holds against nobody.
	Checksum
)

// Lengths in bytes.
const (
	KeySize = 32
	// MaxSize is the longest trailer, MaxHeader the longest header before it.
	MaxSize   = counterSize + tagSize
	MaxHeader = 64
	// Spare is what must be free behind a payload that is encrypted or decrypted.
	Spare = tagSize

	counterSize  = 8
	tagSize      = 16
	checksumSize = 4
	nonceSize    = 12
	numberSize   = 8
)

// Size returns the bytes of a trailer; 0 for the Kind 0, with which there are none.
func (k Kind) Size() int {
	switch k {
	case Tags, Encryption:
		return counterSize + tagSize
	case Checksum:
		return checksumSize
	}
	return 0
}

// Sealer seals the datagrams of one sender under a key, and opens those of all senders under it. It allocates nothing
// and belongs to one goroutine at a time.
//
// Under a key no two Sealers may seal with the same sender's number: they would use counters twice. An attacker who
// sees two datagrams with the same nonce can forge others, and read encrypted ones. So a Sealer must be kept for as
// long as its key is used, even if fabrics are closed and opened meanwhile.
type Sealer struct {
	numbers
	kind   Kind
	aead   cipher.AEAD
	sender uint32
	next   uint64 // counter of the next datagram

	nonce   [nonceSize]byte
	covered [MaxHeader + numberSize]byte // header and number, in one piece as GCM wants them
	scratch [MaxHeader + numberSize + tagSize]byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// New returns a Sealer for a key of KeySize bytes; a Checksum has none. The sender's number tells apart the senders
// that seal under the same key. A key of another length is a mistake of the caller: it panics.
func New(kind Kind, key []byte, sender uint32) *Sealer {
	s := &Sealer{kind: kind, sender: sender}
	if kind == Checksum {
		return s
	}
	if len(key) != KeySize {
		panic(fmt.Sprintf("seal: a key of %d bytes; want %d", len(key), KeySize))
	}
	block, err := aes.NewCipher(key)
	if err == nil {
		s.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(fmt.Sprintf("seal: %v", err)) // only of a key of another length
	}
	coredump.OmitHeap()
	return s
}

// Kind returns what the Sealer does; 0 if it is nil.
func (s *Sealer) Kind() Kind {
	if s == nil {
		return 0
	}
	return s.kind
}

// Size returns the bytes of a trailer; 0 if the Sealer is nil.
func (s *Sealer) Size() int { return s.Kind().Size() }

// Encrypts reports whether payloads are hidden, and so travel from other memory than they lie in.
func (s *Sealer) Encrypts() bool { return s.Kind() == Encryption }

// Keyed reports whether datagrams of senders without the key are refused.
func (s *Sealer) Keyed() bool { return s.Kind() == Tags || s.Kind() == Encryption }

// Seal writes the trailer of the datagram with this number, given by its lower 32 bits, to the last Size bytes of head,
// which holds the header and room for the trailer. With Encryption the payload is written in encrypted form to sealed,
// which has its length and Spare bytes of capacity behind; it may be the payload itself. Otherwise sealed means
// nothing.
func (s *Sealer) Seal(lower uint32, head, payload, sealed []byte) {
	header, trailer := head[:len(head)-s.Size()], head[len(head)-s.Size():]
	if s.kind == Checksum {
		binary.BigEndian.PutUint32(trailer, checksum(header, payload))
		return
	}
	binary.BigEndian.PutUint64(trailer, s.next)
	covered := s.cover(s.sender, s.next, lower, header)
	s.next++ // 2^64 are never sent
	if s.kind == Encryption {
		out := s.aead.Seal(sealed[:0], s.nonce[:], payload, covered)
		copy(trailer[counterSize:], out[len(payload):])
	} else {
		copy(trailer[counterSize:], s.tag(covered, payload))
	}
	s.Advance(lower)
}

// Open reports whether this sender has sealed a datagram with the number that has these lower 32 bits. With Encryption
// it decrypts the payload where it lies, which takes Spare bytes of capacity behind it, and leaves those as they were.
// The payload of a datagram that was not sealed so must not be looked at any more: zeros.
func (s *Sealer) Open(sender, lower uint32, head, payload []byte) bool {
	if len(head) < s.Size() {
		return false
	}
	header, trailer := head[:len(head)-s.Size()], head[len(head)-s.Size():]
	if s.kind == Checksum {
		return binary.BigEndian.Uint32(trailer) == checksum(header, payload)
	}
	covered := s.cover(sender, binary.BigEndian.Uint64(trailer), lower, header)
	tag := trailer[counterSize:]
	if s.kind == Encryption && !s.decrypt(covered, tag, payload) ||
		s.kind == Tags && subtle.ConstantTimeCompare(tag, s.tag(covered, payload)) != 1 {
		return false
	}
	s.Advance(lower)
	return true
}

// Counter returns the counter of a datagram that Open has found true, which no other of its sender has. It is not a
// Checksum's.
func (s *Sealer) Counter(head []byte) uint64 {
	return binary.BigEndian.Uint64(head[len(head)-s.Size():])
}

// cover sets the nonce, and returns header and number in one piece, valid until the next call.
func (s *Sealer) cover(sender uint32, counter uint64, lower uint32, header []byte) []byte {
	binary.BigEndian.PutUint32(s.nonce[:], sender)
	binary.BigEndian.PutUint64(s.nonce[4:], counter)
	n := copy(s.covered[:MaxHeader], header)
	return binary.BigEndian.AppendUint64(s.covered[:n], s.whole(lower))
}

// tag returns the tag of a datagram that travels in clear. GCM wants its additional data in one piece, and the payload
// is the larger part, so it is the additional data. The other covered bytes go where GCM expects the text to encrypt,
// and the encrypted text is dropped.
func (s *Sealer) tag(covered, payload []byte) []byte {
	return s.aead.Seal(s.scratch[:0], s.nonce[:], covered, payload)[len(covered):]
}

// decrypt opens a payload in place. GCM wants the tag behind it.
func (s *Sealer) decrypt(covered, tag, payload []byte) bool {
	n := len(payload)
	whole := payload[:n+tagSize]
	var behind [tagSize]byte
	copy(behind[:], whole[n:])
	copy(whole[n:], tag)
	_, err := s.aead.Open(whole[:0], s.nonce[:], whole, covered)
	copy(whole[n:], behind[:])
	return err == nil
}

// checksum covers header and payload, and not the upper half of the number, which does not travel: without a key
// anybody can guess the numbers in use, so it would not help.
func checksum(header, payload []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, header), castagnoli, payload)
}
