// Package batch moves UDP datagrams across the kernel, many in a call. It is below both that carry
// datagrams: the multicast of internal/transport/udp and the pairs of sockets of
// internal/transport/datagram.
//
// Kernel says what the running kernel offers, Sender is a socket's sending half, and Outbox and
// Inbox are the memory from which a goroutine sends and into which it receives, over any number of
// sockets. Payloads are gathered from where they lie and, where the caller says what to expect,
// received where they belong. Nothing here blocks, allocates a datagram, or is safe for concurrent use.
package batch

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Max is the most datagrams that are sent, and messages that are received, in one call. Linux
// merges and splits at most 64 datagrams (UDP_GRO_CNT_MAX, UDP_MAX_SEGMENTS).
const Max = 64

// MaxPacket is the longest IP packet in bytes, by IPv4's length field. IPv6 could take 40 bytes
// more, but no Inbox.
const MaxPacket = 1<<16 - 1

// MaxHead is the most bytes of a datagram's header.
const MaxHead = 64

// Spare is how many bytes are free behind a payload given by Outbox.Reserve or kept in an Inbox: encryption and
// decryption may write there. In an Inbox they must restore these bytes.
const Spare = 16

// cache is how many bytes to move in a call at most: they fit in the second-level cache, so that the next step finds
// them there.
const cache = 512 << 10

// Open returns a new UDP socket for a domain, AF_INET or AF_INET6, which does not block and which
// no child inherits.
func Open(domain int) (fd int, err error) {
	fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fabric.Unavailable("open UDP socket: %w", err)
	}
	sys.Private(fd)
	return fd, nil
}

// Dropped returns how many datagrams a socket has had no room for since it was opened.
func Dropped(fd int) int {
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return 0 // Linux before 4.12 does not tell
	}
	return int(info[unix.SK_MEMINFO_DROPS])
}

// Queue returns how many datagrams, each in an IP packet of so many bytes, a receive buffer holds for certain while
// nobody reads it. rcvBuf is the value that SO_RCVBUF reads back: the kernel compares it with the memory, not the
// payload, of queued datagrams. Up to a quarter stays charged for datagrams that were read already.
func Queue(rcvBuf, packet int, loopback bool) int {
	return max(1, (rcvBuf-rcvBuf/4)/Footprint(packet, loopback))
}

// Footprint estimates, from above, the kernel memory in bytes that a received packet takes.
// On lo a packet over 16 KiB lies in pages that the sender filled (832 bytes
// over its length on Linux 6.18); else a driver gave it a power of two or a page.
func Footprint(packet int, loopback bool) int {
	const (
		page     = 4096
		overhead = 1024 // struct sk_buff, struct skb_shared_info, headers and headroom
	)
	if loopback && packet > 16<<10 {
		return packet + overhead
	}
	return max(page, 1<<bits.Len(uint(packet+overhead/2-1))) + overhead/2
}
