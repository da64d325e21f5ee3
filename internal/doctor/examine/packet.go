package examine

import (
	"encoding/binary"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"
)

// packet is one that rules are asked about.
type packet struct {
	what      string
	in        bool
	link      string
	index     int
	length    int    // of the whole packet; 0: as short as can be
	network   []byte // IPv4's header
	transport []byte // the part of the next header that rules look at
}

func (p packet) with(what string, in bool, protocol byte, from, to netip.Addr, port uint16) packet {
	p.what, p.in = what, in
	p.network = make([]byte, 20)
	p.network[0], p.network[8], p.network[9] = 0x45, 1, protocol
	copy(p.network[12:], from.AsSlice())
	copy(p.network[16:], to.AsSlice())
	p.transport = make([]byte, 20)
	if port != 0 {
		binary.BigEndian.PutUint16(p.transport[0:], port)
		binary.BigEndian.PutUint16(p.transport[2:], port)
	}
	if protocol == unix.IPPROTO_TCP {
		p.transport[12], p.transport[13] = 0x50, 2 // SYN
	}
	length := min(max(p.length, len(p.network)+len(p.transport)), math.MaxUint16)
	binary.BigEndian.PutUint16(p.network[2:], uint16(length))
	return p
}

// multicast reports whether the destination is a group.
func (p *packet) multicast() bool { return p.network[16]>>4 == 14 }
