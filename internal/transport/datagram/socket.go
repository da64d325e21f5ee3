// Package datagram moves datagrams between pairs of connected UDP sockets, for
// the in-network Reduce-Scatter: a rank and an aggregation node have one pair a
// stripe, so every sender has a receive queue of its own.
//
// Socket is one end; Batch is what a goroutine needs to send and receive over
// any number of them. Datagrams cross the kernel many at a time where it can
// segment and merge them; payloads are gathered from where they lie, and large
// ones received where they belong. Nothing here blocks, allocates a datagram,
// or is safe for concurrent use. Datagrams may be lost and doubled, as ever.
package datagram

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Options say how to open a socket.
type Options struct {
	Local       netip.Addr // to bind to: the only address that it receives at
	First, Last uint16     // take a free port of these, both included; both 0: any port
	RcvBuf      int        // bytes asked for the receive buffer; 0: defaultRcvBuf
	Offload     Offload
}

// A receive buffer is the only queue between two ends. It holds what is under way, some MiB,
// and not the whole memory of the host, should its reader stop.
const defaultRcvBuf = 16 << 20

// Socket is a UDP socket that exchanges datagrams with one peer. It belongs to
// one goroutine at a time.
type Socket struct {
	fd     int
	family *family
	kernel kernel
	rcvBuf int // as the kernel counts, see Queue
	port   uint16
	local  netip.Addr
	peer   netip.AddrPort

	backlog sys.Backlog
}

// Open returns a socket that is bound but receives nothing until Connect. Its
// errors wrap fabric.ErrUnavailable where the machine, not the caller, is in the way.
func Open(o Options) (*Socket, error) {
	if !o.Local.IsValid() || o.Local.IsMulticast() {
		return nil, fmt.Errorf("datagram: local address %v: want an address of this host", o.Local)
	}
	if o.First > o.Last || o.First == 0 && o.Last != 0 {
		return nil, fmt.Errorf("datagram: ports %d to %d: want first to last of 1 to 65535, or 0 to 0 for any", o.First, o.Last)
	}
	if o.RcvBuf < 0 {
		return nil, fmt.Errorf("datagram: receive buffer %d: want a size in bytes, or 0", o.RcvBuf)
	}
	if o.Offload > OffloadSingle {
		return nil, fmt.Errorf("datagram: %v: want auto, gso, batch or single", o.Offload)
	}
	s := &Socket{fd: -1, local: o.Local.Unmap()}
	s.family = familyOf(s.local)
	if err := s.open(&o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Socket) open(o *Options) (err error) {
	if s.fd, err = unix.Socket(s.family.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return fmt.Errorf("%w: open UDP socket: %w", fabric.ErrUnavailable, err)
	}
	sys.Private(s.fd)
	if s.kernel, err = probe(s.fd).limit(o.Offload); err != nil {
		return err
	}
	if s.kernel.merge {
		if err := s.set("UDP_GRO", unix.IPPROTO_UDP, unix.UDP_GRO, 1); err != nil {
			return err
		}
	}
	if err := s.set("IP_MTU_DISCOVER", s.family.level, s.family.discover, s.family.whole); err != nil {
		return err
	}
	if err := s.set("SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, sys.FirstBacklog); err != nil {
		return err
	}
	if err := s.reserve(o.RcvBuf); err != nil {
		return err
	}
	// Until the peer is known, a filter refuses everything.
	refuse := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	program := &unix.SockFprog{Len: 1, Filter: &refuse}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
		return fmt.Errorf("attach socket filter: %w", err)
	}
	return s.bind(o.First, o.Last)
}

func (s *Socket) set(name string, level, opt, value int) error {
	if err := unix.SetsockoptInt(s.fd, level, opt, value); err != nil {
		return fmt.Errorf("set %s=%d: %w", name, value, err)
	}
	return nil
}

// reserve asks for a receive buffer. Root may exceed net.core.rmem_max; the
// kernel cuts the others' wish to it.
func (s *Socket) reserve(size int) (err error) {
	if size == 0 {
		size = defaultRcvBuf
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
		if err := s.set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
			return err
		}
	}
	if s.rcvBuf, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		return fmt.Errorf("read SO_RCVBUF: %w", err)
	}
	return nil
}

// bind takes the first free port of a range.
func (s *Socket) bind(first, last uint16) error {
	for port := int(first); port <= int(last); port++ {
		at, err := sockaddr(netip.AddrPortFrom(s.local, uint16(port))) //nolint:gosec // At most last.
		if err != nil {
			return err
		}
		err = unix.Bind(s.fd, at)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: datagram: bind port %d of %v: %w", fabric.ErrUnavailable, port, s.local, err)
		}
		return s.learnPort()
	}
	return fmt.Errorf("%w: datagram: ports %d to %d of %v are all in use: free some or allow more",
		fabric.ErrUnavailable, first, last, s.local)
}

func (s *Socket) learnPort() error {
	at, err := unix.Getsockname(s.fd)
	if err != nil {
		return fmt.Errorf("getsockname: %w", err)
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		s.port = uint16(at.Port) //nolint:gosec // A port.
	case *unix.SockaddrInet6:
		s.port = uint16(at.Port) //nolint:gosec // A port.
	}
	return nil
}

// Port is the UDP port that the socket is bound to.
func (s *Socket) Port() uint16 { return s.port }

// Local is the address that the socket is bound to.
func (s *Socket) Local() netip.Addr { return s.local }

// Peer is the address that the socket is connected to; not valid before Connect.
func (s *Socket) Peer() netip.AddrPort { return s.peer }

// FD is the descriptor, for a poller; -1 when closed. It belongs to the socket.
func (s *Socket) FD() int { return s.fd }

// Connect makes peer, of the same IP version as the local address, the only
// one whose datagrams arrive. It may be called once.
func (s *Socket) Connect(peer netip.AddrPort) error {
	peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	if s.peer.IsValid() {
		return fmt.Errorf("datagram: connect to %v: already connected to %v", peer, s.peer)
	}
	if !peer.IsValid() || peer.Port() == 0 || familyOf(peer.Addr()) != s.family {
		return fmt.Errorf("datagram: connect %v to %v: want an address and a port of the same IP version", s.local, peer)
	}
	to, err := sockaddr(peer)
	if err != nil {
		return err
	}
	if err := unix.Connect(s.fd, to); err != nil {
		return fmt.Errorf("%w: datagram: connect %v to %v: %w", fabric.ErrUnavailable, s.local, peer, err)
	}
	if err := s.set("SO_DETACH_FILTER", unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil {
		return err
	}
	s.peer = peer
	return nil
}

// MTU is the length in bytes of the largest datagram that the path to the peer
// takes as far as the kernel knows by now; larger ones are refused, never
// fragmented. It is 0 before Connect.
func (s *Socket) MTU() int {
	mtu, err := unix.GetsockoptInt(s.fd, s.family.level, s.family.mtu)
	if err != nil {
		return 0
	}
	return max(0, min(mtu, maxPacket)-s.family.headers)
}

// Queue returns how many datagrams, of that many bytes each, the receive buffer holds for
// certain while nobody reads it. The kernel compares SO_RCVBUF with the memory, not the
// payload, of queued datagrams; up to a quarter of it stays charged for
// datagrams that were read already.
func (s *Socket) Queue(datagram int) int {
	room := s.rcvBuf - s.rcvBuf/4
	return max(1, room/footprint(datagram+s.family.headers, s.peer.Addr() == s.local || s.peer.Addr().IsLoopback()))
}

// footprint estimates, from above, the kernel memory that a received packet takes.
// On lo a packet over 16 KiB lies in pages that the sender filled (832 bytes
// over its length on Linux 6.18); else a driver gave it a power of two or a page.
func footprint(packet int, loopback bool) int {
	const (
		page     = 4096
		overhead = 1024 // struct sk_buff, struct skb_shared_info, headers and headroom
	)
	if loopback && packet > 16<<10 {
		return packet + overhead
	}
	return max(page, 1<<bits.Len(uint(packet+overhead/2-1))) + overhead/2
}

// Close gives the descriptor and the port back. Closing twice does nothing.
func (s *Socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}
