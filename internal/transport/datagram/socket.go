// Package datagram moves datagrams between pairs of connected UDP sockets, for
// the in-network Reduce-Scatter: a rank and an aggregation node have one pair a
// stripe, so every sender has a receive queue of its own.
//
// Socket is one end; Batch is what a goroutine needs to send and receive over
// any number of them, by internal/transport/batch: many datagrams a call, payloads gathered from
// where they lie, and large ones received where they belong. Nothing here blocks, allocates a
// datagram, or is safe for concurrent use. Datagrams may be lost and doubled, as ever.
package datagram

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Options say how to open a socket.
type Options struct {
	Local       netip.Addr // to bind to: the only address that it receives at
	First, Last uint16     // take a free port of these, both included; both 0: any port
	RcvBuf      int        // bytes asked for the receive buffer; 0: defaultRcvBuf
	Offload     batch.Offload
	DSCP        int // of sent packets, see sys.Mark
}

// A receive buffer is the only queue between two ends. It holds some MiB of datagrams under way,
// and not the whole memory of the host, should its reader stop.
const defaultRcvBuf = 16 << 20

// Socket is a UDP socket that exchanges datagrams with one peer. It belongs to
// one goroutine at a time.
type Socket struct {
	sender  batch.Sender // with the descriptor
	carrier Carrier      // nil: the kernel
	family  *batch.Family
	rcvBuf  int // as the kernel counts, see Queue
	port    uint16
	local   netip.Addr
	peer    netip.AddrPort
}

// Open returns a socket that is bound but receives nothing until Connect. Its
// errors wrap fabric.ErrUnavailable where the machine, not the caller, is in the way.
func Open(o Options) (*Socket, error) {
	if !o.Local.IsValid() || o.Local.IsMulticast() {
		return nil, fmt.Errorf("datagram: local address %v: want an address of this host", o.Local)
	}
	if o.First > o.Last || o.First == 0 && o.Last != 0 {
		return nil,
			fmt.Errorf("datagram: ports %d to %d: want first to last of 1 to 65535, or 0 to 0 for any", o.First, o.Last)
	}
	if o.RcvBuf < 0 {
		return nil, fmt.Errorf("datagram: receive buffer %d: want a size in bytes, or 0", o.RcvBuf)
	}
	if err := o.Offload.Check(); err != nil {
		return nil, fmt.Errorf("datagram: %w", err)
	}
	s := &Socket{local: o.Local.Unmap()}
	s.family = batch.FamilyOf(s.local)
	s.sender = batch.Sender{FD: -1, Headers: s.family.Headers}
	if err := s.open(&o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Socket) open(o *Options) (err error) {
	k, err := batch.Probe()
	if err != nil {
		return err
	}
	if s.sender.Use, _, err = k.Limit(o.Offload, true); err != nil {
		return fmt.Errorf("datagram: %w", err)
	}
	if s.sender.FD, err = batch.Open(s.family.Domain); err != nil {
		return err
	}
	options := []batch.Option{
		s.family.Whole,
		{Name: "SO_SNDBUF", Level: unix.SOL_SOCKET, Opt: unix.SO_SNDBUF, Value: batch.FirstBacklog},
	}
	if s.sender.Use.Merge {
		options = append(options, batch.Merging)
	}
	if err := batch.Set(s.sender.FD, options...); err != nil {
		return err
	}
	if err := sys.Mark(s.sender.FD, o.DSCP); err != nil {
		return fmt.Errorf("datagram: %w", err)
	}
	if err := s.reserve(o.RcvBuf); err != nil {
		return err
	}
	if err := s.Mute(true); err != nil { // until the peer is known
		return err
	}
	return s.bind(o.First, o.Last)
}

// reserve asks for a receive buffer. Root may exceed net.core.rmem_max; the
// kernel cuts the others' wish to it.
func (s *Socket) reserve(size int) (err error) {
	if size == 0 {
		size = defaultRcvBuf
	}
	if unix.SetsockoptInt(s.sender.FD, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
		if err := batch.Set(s.sender.FD,
			batch.Option{Name: "SO_RCVBUF", Level: unix.SOL_SOCKET, Opt: unix.SO_RCVBUF, Value: size}); err != nil {
			return err
		}
	}
	if s.rcvBuf, err = unix.GetsockoptInt(s.sender.FD, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		return fmt.Errorf("read SO_RCVBUF: %w", err)
	}
	return nil
}

// bind takes the first free port of a range.
func (s *Socket) bind(first, last uint16) error {
	for port := int(first); port <= int(last); port++ {
		at, err := batch.Sockaddr(netip.AddrPortFrom(s.local, uint16(port)))
		if err != nil {
			return fmt.Errorf("datagram: %w", err)
		}
		err = unix.Bind(s.sender.FD, at)
		if errors.Is(err, unix.EADDRINUSE) && port != 0 {
			continue
		}
		if err != nil {
			return fabric.Unavailable("datagram: bind port %d of %v: %w", port, s.local, sys.Drawn(err))
		}
		s.port, err = batch.PortOf(s.sender.FD)
		return err
	}
	return fabric.Unavailable("datagram: ports %d to %d of %v are all in use: free some or allow more",
		first, last, s.local)
}

// Port is the UDP port that the socket is bound to.
func (s *Socket) Port() uint16 { return s.port }

// Local is the address that the socket is bound to.
func (s *Socket) Local() netip.Addr { return s.local }

// Peer is the address that the socket is connected to; not valid before Connect.
func (s *Socket) Peer() netip.AddrPort { return s.peer }

// FD is the descriptor, for a poller; -1 when closed. It belongs to the socket.
func (s *Socket) FD() int { return s.sender.FD }

// Connect makes peer, of the same IP version as the local address, the only sender of datagrams
// that arrive. It may be called once.
func (s *Socket) Connect(peer netip.AddrPort) error {
	peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
	if s.peer.IsValid() {
		return fmt.Errorf("datagram: connect to %v: already connected to %v", peer, s.peer)
	}
	if !peer.IsValid() || peer.Port() == 0 || batch.FamilyOf(peer.Addr()) != s.family {
		return fmt.Errorf("datagram: connect %v to %v: want an address and a port of the same IP version", s.local, peer)
	}
	if err := s.connect(peer); err != nil {
		return err
	}
	s.peer = peer
	return nil
}

func (s *Socket) connect(peer netip.AddrPort) error {
	if s.carrier != nil {
		return s.carrier.Connect(peer)
	}
	to, err := batch.Sockaddr(peer)
	if err != nil {
		return fmt.Errorf("datagram: %w", err)
	}
	if err := unix.Connect(s.sender.FD, to); err != nil {
		return fabric.Unavailable("datagram: connect %v to %v: %w", s.local, peer, err)
	}
	return s.Mute(false)
}

// Mute has the kernel drop arriving datagrams, or not any more: for a socket that nobody reads
// yet.
func (s *Socket) Mute(on bool) error {
	switch {
	case s.carrier != nil:
		s.carrier.Mute(on)
	case !on:
		return batch.Set(s.sender.FD,
			batch.Option{Name: "SO_DETACH_FILTER", Level: unix.SOL_SOCKET, Opt: unix.SO_DETACH_FILTER})
	default:
		nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
		program := &unix.SockFprog{Len: 1, Filter: &nothing}
		if err := unix.SetsockoptSockFprog(s.sender.FD, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program); err != nil {
			return fmt.Errorf("attach socket filter: %w", err)
		}
	}
	return nil
}

// MTU is the length in bytes of the largest datagram that the path to the peer
// takes as far as the kernel knows by now; larger ones are refused, never
// fragmented. It is 0 before Connect.
func (s *Socket) MTU() int {
	if s.carrier != nil {
		return s.carrier.MTU()
	}
	mtu, err := unix.GetsockoptInt(s.sender.FD, s.family.Level, s.family.MTU)
	if err != nil {
		return 0
	}
	return max(0, min(mtu, batch.MaxPacket)-s.family.Headers)
}

// Queue returns how many datagrams, of that many bytes each, the receive buffer holds for
// certain while nobody reads it.
func (s *Socket) Queue(datagram int) int {
	if s.carrier != nil {
		return s.carrier.Queue(datagram)
	}
	loopback := s.peer.Addr() == s.local || s.peer.Addr().IsLoopback()
	return batch.Queue(s.rcvBuf, datagram+s.family.Headers, loopback)
}

// Close gives the descriptor and the port back. Closing twice does nothing.
func (s *Socket) Close() error {
	fd := s.sender.FD
	if fd < 0 {
		return nil
	}
	s.sender.FD = -1
	if s.carrier != nil {
		return s.carrier.Close()
	}
	return unix.Close(fd)
}
