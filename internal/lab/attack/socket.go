package attack

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	ipHeader  = 20
	udpHeader = 8
	spyBuffer = 4 << 20
	ttl       = 2 // of forged packets, so that an attacker knows them again; ranks send with 1
)

// open joins the group, to listen, and opens a raw socket, which can send packets with any source address. That takes
// CAP_NET_RAW.
func (a *attacker) open() (err error) {
	ifi, err := net.InterfaceByName(a.Interface)
	if err != nil {
		return fmt.Errorf("attack: %s: %w", a.Interface, err)
	}
	at := &unix.IPMreqn{Multiaddr: a.Group.As4(), Ifindex: int32(ifi.Index)}
	if a.spy, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("attack: %w", err)
	}
	_ = unix.SetsockoptInt(a.spy, unix.SOL_SOCKET, unix.SO_RCVBUF, spyBuffer) // as much as there may be
	if err = unix.SetsockoptInt(a.spy, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.SetsockoptInt(a.spy, unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
	}
	if err == nil {
		err = unix.Bind(a.spy, &unix.SockaddrInet4{Port: int(a.Port), Addr: a.Group.As4()})
	}
	if err == nil {
		err = unix.SetsockoptIPMreqn(a.spy, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, at)
	}
	if err != nil {
		return fmt.Errorf("attack: join %v on %s: %w", a.Group, a.Interface, err)
	}
	if a.raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
		return fmt.Errorf("attack: a raw socket, which takes CAP_NET_RAW: %w", err)
	}
	if err = unix.SetsockoptIPMreqn(a.raw, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, at); err != nil {
		return fmt.Errorf("attack: send by %s: %w", a.Interface, err)
	}
	return nil
}

func (a *attacker) close() {
	for _, fd := range []int{a.spy, a.raw} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// isForged reports whether the words of the kernel with a datagram say that an attacker sent it.
func isForged(control []byte) bool {
	messages, err := unix.ParseSocketControlMessage(control)
	for i := range messages {
		m := &messages[i]
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL && len(m.Data) > 0 {
			return m.Data[0] == ttl
		}
	}
	return err != nil
}

// from sends a datagram to the group from an address.
func (a *attacker) from(source netip.Addr, payload []byte) error {
	b := make([]byte, ipHeader+udpHeader, ipHeader+udpHeader+len(payload))
	b[0], b[8], b[9] = 4<<4|ipHeader/4, ttl, unix.IPPROTO_UDP // the kernel adds length, number and checksum
	copy(b[12:], source.AsSlice())
	copy(b[16:], a.Group.AsSlice())
	binary.BigEndian.PutUint16(b[ipHeader:], a.Port)
	binary.BigEndian.PutUint16(b[ipHeader+2:], a.Port)
	binary.BigEndian.PutUint16(b[ipHeader+4:], uint16(udpHeader+len(payload))) // checksum 0: there is none (RFC 768)
	return unix.Sendto(a.raw, append(b, payload...), 0, &unix.SockaddrInet4{Addr: a.Group.As4()})
}
