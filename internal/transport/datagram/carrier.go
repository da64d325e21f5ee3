package datagram

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// Carrier moves the datagrams of a Socket in the kernel's place: see Carried. It is not asked which
// error of a call means what: its errors are the kernel's.
type Carrier interface {
	Connect(peer netip.AddrPort) error
	// Send sends one datagram, which it does not keep.
	Send(head, payload []byte) syscall.Errno
	// Receive returns one that has arrived, until the next call; EAGAIN: there is none.
	Receive() ([]byte, syscall.Errno)
	// Mute has arriving datagrams dropped, or not any more.
	Mute(on bool)
	// MTU is the length in bytes of the largest datagram that the path is known to take.
	MTU() int
	// Queue is how many datagrams of so many bytes wait unread without loss.
	Queue(datagram int) int
	Close() error
}

// Poller waits for sockets as sys.Poller, which is one, does. A socket is known by its FD.
type Poller interface {
	Watch(fd, tag int, events uint32) error
	Change(fd, tag int, events uint32) error
	Ready() []unix.EpollEvent
	Wait(most time.Duration) []unix.EpollEvent
	Wake()
	Close() error
}

// Carried returns a socket at a local address; a carrier moves its datagrams. A Poller knows it by
// fd.
func Carried(fd int, local netip.AddrPort, c Carrier) *Socket {
	s := &Socket{carrier: c, family: batch.FamilyOf(local.Addr()), port: local.Port(), local: local.Addr()}
	s.sender.FD = fd
	return s
}

// carry is Outbox.Send for a socket with a carrier.
func (b *Batch) carry(s *Socket, first int) (sent, refused int, e syscall.Errno) {
	for i := first; i < b.out.Added(); i++ {
		if e := s.carrier.Send(b.out.Datagram(i)); e != 0 {
			return i - first, 1, e
		}
	}
	return b.out.Added() - first, 0, 0
}

// take is Receive for a socket with a carrier.
func (b *Batch) take(s *Socket, hint []byte, budget int, sink Sink) (n int, err error) {
	for n < budget {
		d, e := s.carrier.Receive()
		if e == unix.EAGAIN {
			break
		}
		if e != 0 {
			return n, fmt.Errorf("datagram: receive at port %d from %v: %w", s.port, s.peer, e)
		}
		head := min(b.head, len(d))
		payload := slices.Grow(d[head:], batch.Spare)
		if len(payload) > 0 && len(payload) <= len(hint) {
			payload = hint[:copy(hint, payload)]
		}
		sink.Datagram(d[:head], payload)
		n++
	}
	return n, nil
}
