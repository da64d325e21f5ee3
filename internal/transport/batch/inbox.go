package batch

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// stride is the room for one message: no datagram, and nothing that the kernel
// merges, is longer. It is no power of two, lest all messages begin in the same
// sets of the caches.
const stride = MaxPacket + 1 + 4096 + 64

// Inbox is where a goroutine receives datagrams. Each message has staging memory of its own and lies there as it
// came, with a gap for every datagram that had its payload received to an expected place.
type Inbox struct {
	head  int // bytes of a datagram's header
	whole int // bytes of a datagram as long as can be
	calls *atomic.Uint64
	mem   *inboxMemory
	stage []byte // a stride a message

	// Of the last Receive.
	places   []byte // where payloads are expected, one after another
	each     int    // bytes of a place
	count    int    // places
	merge    bool   // a message may hold several datagrams
	asked    int    // messages that the last call could have taken
	messages int

	// Of the message that Next looks at.
	message     int
	rest        []byte // of its staging memory: the datagrams to come, with their gaps
	size        int    // of its datagrams, but for a shorter last one
	first, last int    // places of the datagrams to come
}

// inboxMemory is what the kernel fills, but for the bytes themselves.
type inboxMemory struct {
	messages [Max]sys.Mmsghdr
	control  [Max][32]byte
	vectors  [3 * Max]sys.Iovec
	heads    [Max][MaxHead]byte // of the datagrams with a place, close together
}

// Datagram is one that has been received. Its bytes are valid until the next Receive.
type Datagram struct {
	Head    []byte // as many of its first bytes as a header has; a shorter one has no more than these
	Payload []byte // with Spare bytes of capacity behind it where it lies in no place and none was expected
	Place   int    // the expected place that Payload lies in, by number; -1: it lies in none
}

// NewInbox reserves the memory for datagrams with a header of head bytes, 1 to MaxHead, and up to
// payload bytes behind it. calls counts the system calls that it makes.
func NewInbox(head, payload int, calls *atomic.Uint64) (*Inbox, error) {
	mem, err := sys.Map[inboxMemory]()
	if err != nil {
		return nil, err
	}
	// Pages that nothing was ever received to cost nothing.
	stage, err := unix.Mmap(-1, 0, Max*stride+Spare, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		_ = sys.Unmap(mem)
		return nil, fmt.Errorf("reserve %d bytes to receive datagrams: %w", Max*stride, err)
	}
	return &Inbox{head: head, whole: head + payload, calls: calls, mem: mem, stage: stage}, nil
}

// Close gives the memory back. Nil is allowed; nothing may be called afterwards.
func (b *Inbox) Close() error {
	if b == nil || b.mem == nil {
		return nil
	}
	mem, stage := b.mem, b.stage
	b.mem, b.stage, b.places = nil, nil, nil
	if err := unix.Munmap(stage); err != nil {
		return err
	}
	return sys.Unmap(mem)
}

// Receive makes one call to the kernel, for at most so many messages; Next then returns their datagrams. use is the
// set of features that the socket was set up for.
//
// The payloads of the first datagrams are received to places of each bytes, one after another (the last may be
// short). That is a guess; Datagram.Place says whether it was right, as far as lengths tell. Other bytes in the
// places are undefined afterwards. Without a datagram it returns EAGAIN.
func (b *Inbox) Receive(fd int, use Kernel, places []byte, each, most int) syscall.Errno {
	b.expect(places, each, use.Merge)
	n := b.offer(use, most)
	b.calls.Add(1)
	b.asked, b.messages, b.message, b.rest = n, 0, -1, nil
	if n > 1 {
		var e syscall.Errno
		b.messages, e = sys.ReceiveBatch(fd, b.mem.messages[:n])
		return e
	}
	m := &b.mem.messages[0]
	size, e := sys.ReceiveMessage(fd, &m.Hdr)
	if e == 0 {
		m.Len, b.messages = uint32(size), 1
	}
	return e
}

// Peek returns the header of the first datagram of a socket's queue, which stays there; EAGAIN: there is none.
// It is valid until the next Receive or Peek.
func (b *Inbox) Peek(fd int) ([]byte, syscall.Errno) {
	b.calls.Add(1)
	n, e := sys.Peek(fd, b.mem.heads[0][:b.head])
	return b.mem.heads[0][:n], e
}

// Longest returns how many bytes the longest message of the last call to Receive has.
func (b *Inbox) Longest() (n int) {
	for i := range b.messages {
		n = max(n, int(b.mem.messages[i].Len))
	}
	return n
}

// Drained reports whether the last call to Receive took fewer messages than it could, so that it has
// seen the end of the queue.
func (b *Inbox) Drained() bool { return b.messages < b.asked }

// expect notes the places of a call.
func (b *Inbox) expect(places []byte, each int, merge bool) {
	b.places, b.each, b.merge, b.count = places, each, merge, 0
	if each == 0 || each > stride-b.head {
		return
	}
	b.count = min((len(places)+each-1)/each, Max)
	if merge { // All are of one message, which leaves the gaps in its staging memory.
		b.count = min(b.count, stride/(b.head+each))
	}
}

// offer points messages at the places and the staging memory, and returns how many they are.
func (b *Inbox) offer(use Kernel, most int) (n int) {
	switch n = max(1, min(most, Max)); {
	case !use.Batch:
		n = 1
	case use.Merge:
		n = min(n, cache/stride)
	default:
		n = min(n, max(1, cache/b.whole))
	}
	used := 0
	for i := range n {
		first := used
		used = b.point(i, used)
		h := &b.mem.messages[i].Hdr
		*h = sys.Msghdr{Iov: uintptr(unsafe.Pointer(&b.mem.vectors[first])), Iovlen: uint64(used - first)}
		if use.Merge {
			h.Control, h.Controllen = uintptr(unsafe.Pointer(&b.mem.control[i])), uint64(len(b.mem.control[i]))
		}
	}
	return n
}

// point sets the vectors of a message, from the used-th on: its places, each behind a header, then
// the rest of its staging memory. It returns how many vectors are used then.
func (b *Inbox) point(message, used int) int {
	rest := b.staged(message)
	from, to := b.span(message)
	for i := from; i < to; i++ {
		place := b.place(i)
		b.mem.vectors[used].Set(b.mem.heads[i][:b.head])
		b.mem.vectors[used+1].Set(place)
		used += 2
		rest = rest[b.head+len(place):]
	}
	b.mem.vectors[used].Set(rest)
	return used + 1
}

// span returns which places a message has: the first all of them if it is merged, else each one.
func (b *Inbox) span(message int) (from, to int) {
	switch {
	case !b.merge:
		return min(message, b.count), min(message+1, b.count)
	case message == 0:
		return 0, b.count
	}
	return 0, 0
}

// place is the i-th expected place.
func (b *Inbox) place(i int) []byte {
	return b.places[i*b.each : min((i+1)*b.each, len(b.places))]
}

// gap is where in the staging memory the datagram of the i-th place would lie.
func (b *Inbox) gap(i int) []byte {
	message, at := i, 0
	if b.merge {
		message, at = 0, i*(b.head+b.each)
	}
	return b.staged(message)[at : at+b.head+len(b.place(i))]
}

// fill copies into a gap the header and the payload that were received elsewhere.
func (b *Inbox) fill(i int) {
	gap := b.gap(i)
	copy(gap[copy(gap, b.mem.heads[i][:b.head]):], b.place(i))
}

// staged is a message's share of the staging memory.
func (b *Inbox) staged(message int) []byte { return b.stage[message*stride : (message+1)*stride] }

// Next turns d to the next datagram of the last Receive, in the order of arrival, and reports whether there was one.
func (b *Inbox) Next(d *Datagram) bool {
	rest := b.rest
	if len(rest) == 0 {
		if !b.open() {
			return false
		}
		rest = b.rest
	}
	n := min(b.size, len(rest))
	head := min(b.head, n)
	b.rest = rest[n:]
	d.Head, d.Payload, d.Place = rest[:head:head], rest[head:n:n+Spare], -1
	if b.first < b.last {
		b.find(d)
	}
	return true
}

// open goes on to the next message, if there is one, and looks at the size at which the kernel has merged datagrams.
// Where they are not as long as was expected, the gaps are filled, so that the message lies in one piece.
func (b *Inbox) open() bool {
	if b.message++; b.message >= b.messages {
		b.message, b.places = b.messages, nil
		return false
	}
	total := int(b.mem.messages[b.message].Len)
	b.rest, b.size = b.staged(b.message)[:total], max(1, total)
	if b.merge {
		b.size = sys.MergedSize(&b.mem.messages[b.message].Hdr, b.mem.control[b.message][:], total)
	}
	b.first, b.last = b.span(b.message)
	if b.first == b.last || b.size == b.head+b.each || b.size >= total && total <= b.head+len(b.place(b.first)) {
		return true
	}
	for ; b.first < b.last; b.first++ {
		b.fill(b.first)
	}
	return true
}

// find turns to where a datagram with a place lies.
func (b *Inbox) find(d *Datagram) {
	i := b.first
	b.first++
	place, head := b.place(i), len(d.Head)
	if len(d.Payload) > len(place) {
		b.fill(i) // It goes on behind the gap: the last place is short.
		return
	}
	d.Head = b.mem.heads[i][:head:head]
	d.Payload, d.Place = place[:len(d.Payload):len(d.Payload)], i
}

// Aside moves the payload of a datagram out of the expected place that it lies in.
func (b *Inbox) Aside(d *Datagram) {
	gap := b.gap(d.Place)[b.head:][:len(d.Payload)]
	copy(gap, d.Payload)
	d.Payload, d.Place = gap, -1
}
