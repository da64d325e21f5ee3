package datagram

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Sink is given what Receive finds.
type Sink interface {
	// Datagram is given one datagram: its first bytes, as many as a header
	// has, and what follows. A shorter datagram, even an empty one, comes as a head
	// that is too short. Both are valid until it returns. It may Add and Flush.
	Datagram(head, payload []byte)
}

// Receive makes one call to the kernel, gives the sink what it brought, in
// order, and returns how many datagrams that were: 0 when there are none. It takes at most
// budget messages; datagrams that the kernel merged count as one there.
//
// With a hint it takes one message, whose payload it has the kernel write
// there, to save copying a large one. The payload that the sink gets lies in the hint
// if it came alone and fits, and elsewhere otherwise; compare addresses. What
// else lies in the hint then is undefined, so give memory that nothing was received to yet.
//
// An error wraps the kernel's and leaves the socket usable. ECONNREFUSED is
// what the network said about a datagram that was sent: nobody listens there.
func (b *Batch) Receive(s *Socket, hint []byte, budget int, sink Sink) (int, error) {
	if budget < 1 {
		return 0, nil
	}
	b.hint = hint[:min(len(hint), stride-b.head)]
	messages, e := b.fetch(s.fd, b.offer(s, budget))
	done := 0
	if e == 0 {
		for i := range messages {
			done += b.split(i, sink)
		}
	}
	b.hint = nil
	if e != 0 && e != unix.EAGAIN && e != unix.ENOMEM {
		return 0, fmt.Errorf("datagram: receive at port %d from %v: %w", s.port, s.peer, e)
	}
	return done, nil
}

// offer points messages at the staging memory, the first at the hint in place
// of the staged payload, and returns how many they are.
func (b *Batch) offer(s *Socket, budget int) int {
	n := 1
	switch {
	case len(b.hint) > 0 || !s.kernel.batch:
	case s.kernel.merge:
		n = min(budget, cache/stride)
	default:
		n = min(budget, MaxBatch, max(1, cache/(b.head+b.payload)))
	}
	for i := range n {
		b.in.vectors[i].Set(b.staged(i))
		b.in.messages[i].Hdr = sys.Msghdr{
			Iov: uintptr(unsafe.Pointer(&b.in.vectors[i])), Iovlen: 1,
			Control: uintptr(unsafe.Pointer(&b.in.control[i])), Controllen: uint64(len(b.in.control[i])),
		}
	}
	if len(b.hint) > 0 {
		v, staged := b.in.vectors[:3], b.staged(0)
		v[0].Set(staged[:b.head])
		v[1].Set(b.hint)
		v[2].Set(staged[b.head+len(b.hint):])
		b.in.messages[0].Hdr.Iovlen = 3
	}
	return n
}

// staged is a message's share of the staging memory.
func (b *Batch) staged(i int) []byte { return b.stage[i*stride : (i+1)*stride] }

// fetch receives up to n messages.
func (b *Batch) fetch(fd, n int) (int, syscall.Errno) {
	b.Syscalls.Add(1)
	if n > 1 {
		return sys.ReceiveBatch(fd, b.in.messages[:n])
	}
	m := &b.in.messages[0]
	size, e := sys.ReceiveMessage(fd, &m.Hdr)
	m.Len = uint32(size) //nolint:gosec // At most 64 KiB.
	return 1, e
}

// split takes a message apart into the datagrams that the kernel merged and
// returns how many they were.
func (b *Batch) split(i int, sink Sink) (n int) {
	staged, total := b.staged(i), int(b.in.messages[i].Len)
	size := sys.MergedSize(&b.in.messages[i].Hdr, b.in.control[i][:], total)
	if len(b.hint) > 0 {
		if payload := total - b.head; size == total && payload >= 0 && payload <= len(b.hint) {
			sink.Datagram(staged[:b.head:b.head], b.hint[:payload:payload])
			return 1
		}
		copy(staged[b.head:max(b.head, total)], b.hint)
	}
	for rest := staged[:total]; n == 0 || len(rest) > 0; n++ {
		d := rest[:min(size, len(rest))]
		rest = rest[len(d):]
		head := min(b.head, len(d))
		sink.Datagram(d[:head:head], d[head:len(d):len(d)])
	}
	return n
}
