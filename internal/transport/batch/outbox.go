package batch

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Sender is the sending half of a connected UDP socket.
type Sender struct {
	FD      int
	Use     Kernel // Segment ends where the device turns out not to segment
	Headers int    // bytes of the IP and the UDP header

	backlog backlog
}

// Outbox is what a goroutine sends datagrams from: a header of its own for each, and payloads where
// they lie, or in its own memory.
type Outbox struct {
	head  int // bytes of a header
	calls *atomic.Uint64
	mem   *outboxMemory

	added    int         // datagrams to send
	bytes    int         // their length
	reserved int         // bytes of payloads that are in use
	payloads [Max][]byte // keeps them where they are for the kernel
	ends     [Max]int    // datagrams up to the end of each message
}

// outboxMemory is what the kernel reads: one header and two vectors a datagram, gathered into messages.
type outboxMemory struct {
	messages [Max]sys.Mmsghdr
	control  [Max]sys.SegmentSize
	vectors  [2 * Max]sys.Iovec
	heads    [Max][MaxHead]byte
	payloads [cache + Max*Spare]byte // those reserved; pages that nobody ever wrote to cost nothing
}

// NewOutbox reserves the memory for datagrams with a header of head bytes, 1 to MaxHead. calls counts
// the system calls that it makes.
func NewOutbox(head int, calls *atomic.Uint64) (*Outbox, error) {
	mem, err := sys.Map[outboxMemory]()
	if err != nil {
		return nil, err
	}
	for i := range mem.heads {
		mem.vectors[2*i].Set(mem.heads[i][:head])
	}
	return &Outbox{head: head, calls: calls, mem: mem}, nil
}

// Close gives the memory back. Nil is allowed; nothing may be called afterwards.
func (b *Outbox) Close() error {
	if b == nil {
		return nil
	}
	mem := b.mem
	b.mem = nil
	return sys.Unmap(mem)
}

// Add appends a datagram to the batch and returns where the caller writes its header, which holds
// what an earlier one left there. It returns nil when the batch is full: Max datagrams or 512 KiB.
// The payload is sent from where it lies, so it must not change until Forget.
func (b *Outbox) Add(payload []byte) (head []byte) {
	size := b.head + len(payload)
	if b.added == Max || b.added > 0 && b.bytes+size > cache {
		return nil
	}
	i := b.added
	b.payloads[i] = payload
	b.mem.vectors[2*i+1].Set(payload)
	b.added++
	b.bytes += size
	return b.mem.heads[i][:b.head:b.head]
}

// Reserve is Add for a payload of n bytes that does not exist yet: it also returns memory where the caller writes the
// payload, with Spare bytes of capacity behind it.
func (b *Outbox) Reserve(n int) (head, payload []byte) {
	end := b.reserved + n
	if end+Spare > len(b.mem.payloads) {
		return nil, nil
	}
	payload = b.mem.payloads[b.reserved : end : end+Spare]
	if head = b.Add(payload); head == nil {
		return nil, nil
	}
	b.reserved = end + Spare
	return head, payload
}

// Added is how many datagrams are in the batch.
func (b *Outbox) Added() int { return b.added }

// Datagram returns the i-th datagram.
func (b *Outbox) Datagram(i int) (head, payload []byte) {
	return b.mem.heads[i][:b.head], b.payloads[i]
}

// Length is how many bytes the i-th datagram has.
func (b *Outbox) Length(i int) int { return b.head + len(b.payloads[i]) }

// Bytes is how many bytes n datagrams have, from the first-th on.
func (b *Outbox) Bytes(first, n int) (bytes int) {
	if n == b.added {
		return b.bytes
	}
	for i := first; i < first+n; i++ {
		bytes += b.Length(i)
	}
	return bytes
}

// Forget empties the batch.
func (b *Outbox) Forget() {
	clear(b.payloads[:b.added])
	b.added, b.bytes, b.reserved = 0, 0, 0
}

// Send sends the datagrams of the batch, from the first-th on, to where the socket is connected. It makes one call and
// returns how many datagrams, in order, the kernel took. Datagrams of the same length that follow each other go in one
// message; the last may be shorter.
//
// With an error the kernel took none, and refused is how many datagrams the first message held; see
// RefusalOf. A refusal that may be of segmentation has been tried without.
func (b *Outbox) Send(s *Sender, first int) (sent, refused int, e syscall.Errno) {
	sent, e = b.transmit(s, first, s.Use.Segment)
	refused = b.ends[0] - first
	if s.Use.Segment && (e == unix.EIO || e == unix.EINVAL) {
		// EIO: the device has no checksum offload, so it cannot segment, ever. EINVAL: the address is
		// gone or the MTU was lowered, for a moment perhaps; without segmentation the kernel says which.
		s.Use.Segment = e == unix.EINVAL
		sent, e = b.transmit(s, first, false)
		refused = b.ends[0] - first // of this call's first message, which is shorter
	}
	switch e {
	case 0:
		s.backlog.sent(b.Bytes(first, sent))
		return sent, 0, 0
	case unix.EAGAIN:
		_ = s.backlog.full(s.FD, time.Now()) // Else the buffer stays as large as it is.
	}
	return 0, refused, e
}

// transmit makes one call. If there is an error, nothing went.
func (b *Outbox) transmit(s *Sender, first int, segment bool) (int, syscall.Errno) {
	messages := b.gather(s, first, segment)
	b.calls.Add(1)
	if messages == 1 {
		if _, e := sys.SendMessage(s.FD, &b.mem.messages[0].Hdr); e != 0 {
			return 0, e
		}
		return b.ends[0] - first, 0
	}
	n, e := sys.SendBatch(s.FD, b.mem.messages[:messages])
	if e != 0 {
		return 0, e
	}
	return b.ends[n-1] - first, 0
}

// gather arranges the datagrams from the first-th on in messages and returns how many messages one
// call takes.
func (b *Outbox) gather(s *Sender, first int, segment bool) (messages int) {
	for first < b.added {
		end := first + 1
		if segment {
			end = b.run(first, MaxPacket-s.Headers)
		}
		h := &b.mem.messages[messages].Hdr
		*h = sys.Msghdr{Iov: uintptr(unsafe.Pointer(&b.mem.vectors[2*first])), Iovlen: uint64(2 * (end - first))}
		if end-first > 1 {
			c := &b.mem.control[messages]
			c.Set(b.Length(first))
			c.Attach(h)
		}
		b.ends[messages] = end
		messages++
		first = end
		if !s.Use.Batch {
			break
		}
	}
	return messages
}

// run returns where the datagrams end that go in one message with the first-th, of so many bytes at
// most: all of its length, but for a shorter last one.
func (b *Outbox) run(first, most int) (end int) {
	size := b.Length(first)
	room := most - size
	end = first + 1
	for last := size; end < b.added && last == size; end++ {
		last = b.Length(end)
		if last > size || last > room {
			break
		}
		room -= last
	}
	return end
}
