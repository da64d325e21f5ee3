package datagram

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// MaxBatch is the most datagrams that are sent, and messages that are received, in one call.
const MaxBatch = batch.Max

// Straight is the payload size from which a hint is worth giving. Below it,
// taking many datagrams in one call is worth more than the copy that a hint saves.
const Straight = 16 << 10

// Batch is what a goroutine needs to move datagrams over any number of sockets.
// It belongs to one goroutine at a time; only its counters may be read by others.
type Batch struct {
	out *batch.Outbox
	in  *batch.Inbox

	head int  // bytes of a header
	room Room // see Room

	Syscalls atomic.Uint64 // made so far
	Refused  atomic.Uint64 // datagrams that were not sent because a firewall or a policy forbids it (EPERM)
}

// Sink is given what Receive finds.
type Sink interface {
	// Datagram is given one datagram: a head as long as a header, and the bytes behind. A shorter datagram, even an
	// empty one, comes as a head that is too short. Both are valid until it returns. It may Add and Flush.
	Datagram(head, payload []byte)
}

// NewBatch reserves the memory for datagrams of a header of head bytes, 1 to
// 64, and up to payload bytes behind it.
func NewBatch(head, payload int) (b *Batch, err error) {
	if largest := batch.MaxPacket - batch.IPv4.Headers - head; head < 1 || head > batch.MaxHead || payload < 0 ||
		payload > largest {
		return nil, fmt.Errorf("datagram: header of %d and payload of %d bytes: want 1 to %d and 0 to %d", head, payload,
			batch.MaxHead, largest)
	}
	b = &Batch{head: head}
	if b.out, err = batch.NewOutbox(head, &b.Syscalls); err != nil {
		return nil, err
	}
	if b.in, err = batch.NewInbox(head, payload, &b.Syscalls); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close gives the memory back. Nothing may be called afterwards.
func (b *Batch) Close() error { return errors.Join(b.out.Close(), b.in.Close()) }

// Add appends a datagram for the next Flush and returns memory for its header, which holds the bytes of an
// earlier one. It returns nil when the batch is full: 64 datagrams or 512 KiB. The payload is sent from where it
// lies, so it must not change until Flush, which forgets it.
func (b *Batch) Add(payload []byte) (head []byte) { return b.out.Add(payload) }

// Reserve is Add for a payload of n bytes that does not exist yet: it also returns memory where the caller
// writes the payload, with batch.Spare bytes of capacity behind it.
func (b *Batch) Reserve(n int) (head, payload []byte) { return b.out.Reserve(n) }

// Added is how many datagrams wait for Flush.
func (b *Batch) Added() int { return b.out.Added() }

// Forget drops the added datagrams.
func (b *Batch) Forget() { b.out.Forget() }

// Flush sends the added datagrams, in order, to the socket's peer and returns how many, from the first, the
// kernel took or a firewall ate. The rest are forgotten too: without an error, the kernel had no room. Datagrams
// of the same length that follow each other go in one buffer; the last may be shorter.
//
// An error wraps the kernel's and leaves the socket usable. ECONNREFUSED and
// EHOSTUNREACH are what the network said about an earlier datagram; EMSGSIZE is a
// datagram longer than Socket.MTU.
func (b *Batch) Flush(s *Socket) (sent int, err error) {
	defer b.out.Forget()
	b.room = Free
	for sent < b.out.Added() {
		n, refused, e := b.send(s, sent)
		sent += n
		if e == 0 {
			continue
		}
		switch batch.RefusalOf(e) {
		case batch.NoRoom:
			b.room = Full
			return sent, nil
		case batch.Congested:
			b.room = Congested
			return sent, nil
		case batch.Forbidden:
			b.Refused.Add(uint64(refused))
			sent += refused
		default:
			return sent, s.sendError(b.out.Length(sent), e)
		}
	}
	return sent, nil
}

// send sends the added datagrams from the first-th on, as Outbox.Send does.
func (b *Batch) send(s *Socket, first int) (sent, refused int, e syscall.Errno) {
	if s.carrier != nil {
		return b.carry(s, first)
	}
	return b.out.Send(&s.sender, first)
}

// sendError says what a refusal means.
func (s *Socket) sendError(size int, e syscall.Errno) error {
	if batch.RefusalOf(e) == batch.TooLarge {
		return fmt.Errorf("datagram: send %d bytes from port %d to %v: the path takes %d: %w", size, s.port, s.peer, s.MTU(),
			e)
	}
	return fmt.Errorf("datagram: send from port %d to %v: %w", s.port, s.peer, e)
}

// Unreachable reports whether an error is what the network, or somebody in its name, said about an
// earlier datagram: that nobody listens at the peer, or that there is no way to it.
func Unreachable(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH)
}

// Receive makes one call to the kernel, gives the sink the received datagrams in order, and returns how many
// they were: 0 when there are none. It takes at most budget messages; datagrams that the kernel merged count as
// one there.
//
// With a hint it takes one message and has the kernel write its first payload there, to save copying a large
// one. A payload for the sink lies in the hint if it was received there and fits, and elsewhere otherwise;
// compare addresses. The rest of the hint is undefined then, so give memory that nothing was received to yet.
//
// An error wraps the kernel's and leaves the socket usable. ECONNREFUSED is
// what the network said about a datagram that was sent: nobody listens there.
func (b *Batch) Receive(s *Socket, hint []byte, budget int, sink Sink) (n int, err error) {
	if budget < 1 {
		return 0, nil
	}
	if len(hint) > 0 {
		hint, budget = hint[:min(len(hint), batch.MaxPacket)], 1
	}
	if s.carrier != nil {
		return b.take(s, hint, budget, sink)
	}
	switch e := b.in.Receive(s.sender.FD, s.sender.Use, hint, len(hint), budget); e {
	case 0:
	case unix.EAGAIN, unix.ENOMEM:
		return 0, nil
	default:
		return 0, fmt.Errorf("datagram: receive at port %d from %v: %w", s.port, s.peer, e)
	}
	var d batch.Datagram
	for b.in.Next(&d) {
		sink.Datagram(d.Head, d.Payload)
		n++
	}
	return n, nil
}
