package datagram

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Add appends a datagram to those that the next Flush sends and returns where
// the caller writes its header, which holds what an earlier one left there. It returns nil
// when the batch is full: 64 datagrams or 512 KiB. The payload is sent from where it
// lies, so it must not change until Flush, which forgets it.
func (b *Batch) Add(payload []byte) (head []byte) {
	size := b.head + len(payload)
	if b.added == MaxBatch || b.added > 0 && b.bytes+size > cache {
		return nil
	}
	i := b.added
	b.payloads[i] = payload
	b.out.vectors[2*i+1].Set(payload)
	b.added++
	b.bytes += size
	return b.out.heads[i][:b.head:b.head]
}

// Added is how many datagrams wait for Flush.
func (b *Batch) Added() int { return b.added }

// Flush sends the added datagrams, in order, to the socket's peer and returns how many of
// them, from the first, the kernel took. The rest are forgotten too: without an
// error, the kernel had no room (EAGAIN). Datagrams that follow each other with
// the same length, of which the last may be shorter, go in one buffer.
//
// An error wraps the kernel's and leaves the socket usable. ECONNREFUSED and
// EHOSTUNREACH are what the network said about an earlier datagram; EMSGSIZE is a
// datagram longer than Socket.MTU.
func (b *Batch) Flush(s *Socket) (sent int, err error) {
	segment := s.kernel.segment
	for sent < b.added {
		n, e := b.transmit(s, sent)
		s.took(b, sent, n)
		sent += n
		if e == 0 {
			continue
		}
		if e == unix.EPERM { // A firewall ate the first message: lost like any other.
			b.Refused.Add(uint64(b.ends[0] - sent)) //nolint:gosec // At most 64.
			sent = b.ends[0]
			continue
		}
		if s.kernel.segment && (e == unix.EIO || e == unix.EINVAL) {
			s.kernel.segment = false
			// EIO: the device has no checksum offload, so it cannot segment. EINVAL: the address is gone or
			// the MTU was lowered, for a moment perhaps; without segmentation the kernel says which.
			segment = e == unix.EINVAL
			continue
		}
		err = s.sendError(b.length(sent), e)
		break
	}
	s.kernel.segment = segment
	b.Forget()
	return sent, err
}

// Forget drops the added datagrams.
func (b *Batch) Forget() {
	clear(b.payloads[:b.added])
	b.added, b.bytes = 0, 0
}

// Unreachable reports whether an error is what the network, or somebody in its name, said about an
// earlier datagram: that nobody listens at the peer, or that there is no way to it.
func Unreachable(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// transmit sends datagrams from the first-th on in one call and returns how
// many went. If there is an error, none did.
func (b *Batch) transmit(s *Socket, first int) (int, syscall.Errno) {
	messages := b.gather(s, first)
	b.Syscalls.Add(1)
	if messages == 1 {
		if _, e := sys.SendMessage(s.fd, &b.out.messages[0].Hdr); e != 0 {
			return 0, e
		}
		return b.ends[0] - first, 0
	}
	n, e := sys.SendBatch(s.fd, b.out.messages[:messages])
	if e != 0 {
		return 0, e
	}
	return b.ends[n-1] - first, 0
}

// gather arranges the datagrams from the first-th on in messages and returns
// how many messages one call takes.
func (b *Batch) gather(s *Socket, first int) (messages int) {
	for first < b.added {
		end, size := b.run(s, first), b.length(first)
		h := &b.out.messages[messages].Hdr
		*h = sys.Msghdr{
			Iov:    uintptr(unsafe.Pointer(&b.out.vectors[2*first])),
			Iovlen: uint64(2 * (end - first)), //nolint:gosec // At most 128.
		}
		if end-first > 1 {
			c := &b.out.control[messages]
			c.Set(size)
			c.Attach(h)
		}
		b.ends[messages] = end
		messages++
		first = end
		if !s.kernel.batch {
			break
		}
	}
	return messages
}

// run returns where the datagrams end that go in one message with the first-th:
// all of its length, but for a shorter last one.
func (b *Batch) run(s *Socket, first int) (end int) {
	end = first + 1
	if !s.kernel.segment {
		return end
	}
	size := b.length(first)
	room := maxPacket - s.family.headers - size
	for last := size; end < b.added && last == size; end++ {
		last = b.length(end)
		if last > size || last > room {
			break
		}
		room -= last
	}
	return end
}

// length is how long the i-th datagram is.
func (b *Batch) length(i int) int { return b.head + len(b.payloads[i]) }

// took counts n datagrams of a batch, from the first-th on, as on their way.
func (s *Socket) took(b *Batch, first, n int) {
	for i := first; i < first+n; i++ {
		s.backlog.Sent(b.length(i))
	}
}

// sendError says what a refusal means. No room is not an error.
func (s *Socket) sendError(size int, e syscall.Errno) error {
	switch {
	case e == unix.EAGAIN:
		return s.backlog.Full(s.fd)
	case e == unix.ENOBUFS || e == unix.ENOMEM:
		return nil
	case errors.Is(e, unix.EMSGSIZE):
		return fmt.Errorf("datagram: send %d bytes from port %d to %v: the path takes %d: %w", size, s.port, s.peer, s.MTU(), e)
	}
	return fmt.Errorf("datagram: send from port %d to %v: %w", s.port, s.peer, e)
}
