package udp

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// inbox is what the kernel fills when we receive. A slot takes one datagram:
// its header, and its payload in up to two parts, the room where the chunk is
// expected and, as far as that is short, the slot's share of the staging buffer.
type inbox struct {
	messages [slots]sys.Mmsghdr
	vectors  [3 * slots]sys.Iovec
	headers  [slots][wire.DataSize]byte
	control  [64]byte // of the only message, with UDP_GRO
}

// arrival is a datagram that lies in a slot.
type arrival struct {
	head    wire.Data
	slot    int
	length  int  // of the payload
	guessed bool // it is the chunk that was expected in the slot, so it lies in the room
}

// receive makes one call to the kernel and hands what it brought to the sink.
// It returns how many datagrams that were.
func (g *Gather) receive(fd int, s fabric.Sink, budget int) int {
	guess := s.Expect()
	messages := g.offer(guess.Dst, budget)
	n, e := g.fetch(fd, messages)
	runtime.KeepAlive(guess.Dst)
	if e != 0 {
		if e != unix.EAGAIN && e != unix.ENOMEM {
			g.note(fmt.Errorf("receive multicast from %s: %w", g.options.Interface.Name, e))
		}
		return 0
	}
	if g.plan.merge {
		return g.split(s, &guess)
	}
	for i := range n {
		m := &g.in.messages[i]
		g.arrived(&guess, i, int(m.Len), m.Hdr.Flags)
	}
	g.deliver(s, &guess)
	return n
}

// fetch receives up to n messages.
func (g *Gather) fetch(fd, n int) (int, syscall.Errno) {
	g.stats.syscalls.Add(1)
	if n > 1 {
		return sys.ReceiveBatch(fd, g.in.messages[:n])
	}
	m := &g.in.messages[0]
	size, e := sys.ReceiveMessage(fd, &m.Hdr)
	m.Len = uint32(size) //nolint:gosec // At most 64 KiB.
	return 1, e
}

// offer points the inbox's vectors at where chunks are expected and returns
// how many messages may come.
func (g *Gather) offer(expected []byte, budget int) int {
	b := g.in
	n := max(1, min(g.plan.messages, budget))
	if g.plan.merge {
		n = min(slots, maxDatagram/(g.chunk+wire.DataSize)+1)
	}
	used := 0
	for i := range n {
		first := used
		b.vectors[used].Set(b.headers[i][:])
		used++
		room := g.room(expected, i)
		if len(room) > 0 {
			b.vectors[used].Set(room)
			used++
		}
		if len(room) < g.chunk {
			b.vectors[used].Set(g.staged(i)[len(room):])
			used++
		}
		if !g.plan.merge {
			b.messages[i].Hdr = sys.Msghdr{Iov: uintptr(unsafe.Pointer(&b.vectors[first])), Iovlen: uint64(used - first)}
		}
	}
	if !g.plan.merge {
		return n
	}
	b.messages[0].Hdr = sys.Msghdr{
		Iov: uintptr(unsafe.Pointer(&b.vectors)), Iovlen: uint64(used),
		Control: uintptr(unsafe.Pointer(&b.control)), Controllen: uint64(len(b.control)),
	}
	return 1
}

// room is where a slot's chunk is expected, up to one chunk long.
func (g *Gather) room(expected []byte, slot int) []byte {
	start := min(slot*g.chunk, len(expected))
	return expected[start:min(start+g.chunk, len(expected))]
}

// staged is a slot's share of the staging buffer.
func (g *Gather) staged(slot int) []byte {
	return g.stage[slot*g.chunk : (slot+1)*g.chunk]
}

// arrived notes a datagram of size bytes in a slot. A payload that was read to
// a place where it does not belong moves to the staging buffer now, before
// deliver moves anything there.
func (g *Gather) arrived(guess *fabric.Expected, slot, size int, flags int32) {
	a := &g.arrivals[g.noted]
	if flags&unix.MSG_TRUNC != 0 || size < wire.DataSize || !g.decode(&a.head, g.in.headers[slot][:]) {
		g.stats.dropped.Add(1)
		return
	}
	room := g.room(guess.Dst, slot)
	a.slot, a.length = slot, size-wire.DataSize
	a.guessed = a.head.Root == guess.Root && a.head.Seq == guess.Seq &&
		a.head.PSN-guess.PSN == uint32(slot) && a.length <= len(room) //nolint:gosec // At most 63.
	if !a.guessed {
		copy(g.staged(slot)[:a.length], room)
	}
	g.noted++
}

// decode reads a header and checks what the socket filter promised.
func (g *Gather) decode(h *wire.Data, b []byte) bool {
	return h.Get(b) == nil && h.Job == g.job && int(h.Root) < g.size && int(h.Root) != g.rank
}

// deliver hands the noted datagrams to the sink.
func (g *Gather) deliver(s fabric.Sink, guess *fabric.Expected) {
	for i := range g.arrivals[:g.noted] {
		a := &g.arrivals[i]
		room := g.room(guess.Dst, a.slot)
		from := g.staged(a.slot)
		if a.guessed {
			from = room
		}
		g.place(s, &a.head, from[:a.length], len(room) > 0)
	}
	g.noted = 0
}

// place hands one datagram to the sink and moves its payload, unless it was
// received in its place. guessed says that it was received in some place.
func (g *Gather) place(s fabric.Sink, h *wire.Data, payload []byte, guessed bool) {
	g.stats.receivedChunks.Add(1)
	g.stats.receivedBytes.Add(uint64(wire.DataSize + len(payload)))
	to, verdict, _ := s.Accept(h, len(payload))
	if verdict != fabric.Take {
		g.stats.dropped.Add(1)
		return
	}
	if len(payload) > 0 && &to[0] != &payload[0] {
		copy(to, payload)
		if guessed {
			g.stats.misplaced.Add(1)
		}
	}
	s.Received(h)
}

// split takes the only message of the inbox apart into the datagrams that the
// kernel merged, and returns how many they were. Full chunks, the last of them
// perhaps short, lie in one slot each.
func (g *Gather) split(s fabric.Sink, guess *fabric.Expected) int {
	m := &g.in.messages[0]
	total, datagram := int(m.Len), g.chunk+wire.DataSize
	size := sys.MergedSize(&m.Hdr, g.in.control[:], total)
	if m.Hdr.Flags&unix.MSG_TRUNC != 0 || size > datagram {
		g.stats.dropped.Add(1)
		return 1
	}
	n := max(1, (total+size-1)/size)
	if size < datagram && n > 1 {
		g.unravel(s, guess.Dst, total, size)
		return n
	}
	for i := range n {
		g.arrived(guess, i, min(datagram, total-i*datagram), 0)
	}
	g.deliver(s, guess)
	return n
}

// unravel takes a message of merged datagrams apart that are shorter than a
// chunk, so that they do not fit the slots they were received into.
func (g *Gather) unravel(s fabric.Sink, expected []byte, total, size int) {
	flat := g.flat[:0]
	for i := 0; len(flat) < total; i++ {
		room := g.room(expected, i)
		flat = append(flat, g.in.headers[i][:]...)
		flat = append(flat, room...)
		flat = append(flat, g.staged(i)[len(room):]...)
	}
	flat = flat[:total]
	for len(flat) > 0 {
		b := flat[:min(size, len(flat))]
		flat = flat[len(b):]
		var h wire.Data
		if !g.decode(&h, b) {
			g.stats.dropped.Add(1)
			continue
		}
		g.place(s, &h, b[wire.DataSize:], len(expected) > 0)
	}
}
