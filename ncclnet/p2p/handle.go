package p2p

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// HandleSize is the size of the buffer in which NCCL carries a listener's address to the other side
// (NCCL_NET_HANDLE_MAXSIZE).
const HandleSize = 128

// Where things lie in a handle, little endian. Everything before the state is
// the listener's and covered by the checksum; the state is Connect's own.
const (
	atMagic    = 0  // 4 bytes
	atVersion  = 4  // 2
	atPort     = 6  // 2
	atAddress  = 8  // 16, IPv4 as ::ffff:a.b.c.d
	atKey      = 24 // 8
	atHost     = 32 // 8
	atLanes    = 40 // 2
	atFabrics  = 42 // 2
	atZone     = 44 // 16, of a link-local address
	atChecksum = 60 // 4
	atState    = 64 // 8
)

const (
	magic   = 0x5032434d // "MC2P"
	version = 3          // of handles, greetings and frames
)

var (
	errHandle = errors.New("p2p: the handle is garbled, or not one of this library")
	errState  = errors.New("p2p: the connection that the handle stands for is not known: the handle is garbled, or " +
		"nobody asked for 20 times MCAST_TIMEOUT")
)

// address is the content of a handle: the listener's address, and the key that it wants to get.
type address struct {
	addr    netip.AddrPort
	key     uint64
	host    uint64 // same for processes that can share memory
	lanes   int
	fabrics fabrics
	held    bool // it answers by its interface, wherever routes lead: see netdev.Crossed
}

// heldBit is held, beside the fabrics.
const heldBit = 1 << 15

func (p address) put(h []byte) {
	clear(h[:HandleSize])
	binary.LittleEndian.PutUint32(h[atMagic:], magic)
	binary.LittleEndian.PutUint16(h[atVersion:], version)
	binary.LittleEndian.PutUint16(h[atPort:], p.addr.Port())
	a := p.addr.Addr().As16()
	copy(h[atAddress:], a[:])
	binary.LittleEndian.PutUint64(h[atKey:], p.key)
	binary.LittleEndian.PutUint64(h[atHost:], p.host)
	binary.LittleEndian.PutUint16(h[atLanes:], uint16(p.lanes))
	set := uint16(p.fabrics)
	if p.held {
		set |= heldBit
	}
	binary.LittleEndian.PutUint16(h[atFabrics:], set)
	copy(h[atZone:atChecksum], p.addr.Addr().Zone())
	binary.LittleEndian.PutUint32(h[atChecksum:], crc32.ChecksumIEEE(h[:atChecksum]))
}

func parseHandle(h []byte) (address, error) {
	if len(h) < HandleSize {
		return address{}, fmt.Errorf("p2p: a handle has %d bytes, not %d", HandleSize, len(h))
	}
	if binary.LittleEndian.Uint32(h[atMagic:]) != magic ||
		binary.LittleEndian.Uint32(h[atChecksum:]) != crc32.ChecksumIEEE(h[:atChecksum]) {
		return address{}, errHandle
	}
	if v := binary.LittleEndian.Uint16(h[atVersion:]); v != version {
		return address{}, fmt.Errorf("p2p: the peer's library speaks version %d, this one %d", v, version)
	}
	addr := netip.AddrFrom16([16]byte(h[atAddress : atAddress+16])).Unmap()
	if zone := strings.TrimRight(string(h[atZone:atChecksum]), "\x00"); zone != "" {
		addr = addr.WithZone(zone)
	}
	return address{
		addr:    netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(h[atPort:])),
		key:     binary.LittleEndian.Uint64(h[atKey:]),
		host:    binary.LittleEndian.Uint64(h[atHost:]),
		lanes:   int(binary.LittleEndian.Uint16(h[atLanes:])),
		fabrics: fabrics(binary.LittleEndian.Uint16(h[atFabrics:]) &^ heldBit),
		held:    binary.LittleEndian.Uint16(h[atFabrics:])&heldBit != 0,
	}, nil
}

// socketName names the Unix socket, in the abstract name space, at which a listener
// takes rings. It does not give away the key to those who see the name.
func (p address) socketName() string {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("door"), p.key))
	return "@torch-mcast-p2p-" + hex.EncodeToString(sum[:8])
}

// hostDigest is the same for processes of one host and network namespace.
func hostDigest() uint64 {
	sum := sha256.Sum256([]byte(netdev.HostID()))
	return binary.LittleEndian.Uint64(sum[:])
}
