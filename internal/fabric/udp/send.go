package udp

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/fabric"
	"github.com/torch-mcast/torch-mcast/internal/fabric/sys"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// pause is how long to wait when a device's queue is full: nothing tells when
// it has room.
const pause = 100 * time.Microsecond

// outbox is what the kernel reads when we send: one header and two vectors a
// chunk, gathered into messages.
type outbox struct {
	messages [slots]sys.Mmsghdr
	control  [slots]sys.SegmentSize
	vectors  [2 * slots]sys.Iovec
	headers  [slots][wire.DataSize]byte
}

func (b *outbox) init(datagram int) {
	for i := range b.control {
		b.control[i].Set(datagram)
	}
	for i := range b.headers {
		b.vectors[2*i].Set(b.headers[i][:])
	}
}

// sender multicasts to one subgroup.
type sender struct {
	fd      int
	blocked bool // the kernel refused something; watched until it has room
	backlog sys.Backlog
}

// Multicast implements fabric.Gather. The run goes to the subgroup that its header names.
func (g *Gather) Multicast(r *fabric.Run) int {
	subgroup, sent := int(r.Head.Subgroup), 0
	for sent < r.Count && g.fault == nil {
		n := g.fill(r, sent)
		taken, e := g.transmit(g.senders[subgroup].fd, n)
		if e == unix.EPERM {
			taken, e = min(g.plan.segments, n), 0 // A firewall ate it: lost like any other.
		}
		if e != 0 && !g.refused(subgroup, e) {
			break
		}
		sent += taken
		g.senders[subgroup].backlog.Sent(taken * (wire.DataSize + g.chunk))
	}
	runtime.KeepAlive(r)
	if sent > 0 {
		first, last := int(r.Head.PSN)*g.chunk, min((int(r.Head.PSN)+sent)*g.chunk, len(r.Shard))
		g.stats.sentChunks.Add(uint64(sent))
		g.stats.sentBytes.Add(uint64(sent*wire.DataSize + last - first)) //nolint:gosec // Lengths.
	}
	return sent
}

// fill puts chunks of a run, from the skip-th on, into the outbox and returns
// how many fitted.
func (g *Gather) fill(r *fabric.Run, skip int) int {
	b := g.out
	n := min(r.Count-skip, g.plan.segments*g.plan.messages, slots)
	head := r.Head
	head.Job, head.Root = g.job, uint16(g.rank) //nolint:gosec // Below maxRanks.
	for i := range n {
		head.PSN = r.Head.PSN + uint32(skip+i) //nolint:gosec // PSNs are 32 bits wide.
		head.Put(b.headers[i][:])
		start := int(head.PSN) * g.chunk
		b.vectors[2*i+1].Set(r.Shard[start:min(start+g.chunk, len(r.Shard))])
	}
	return n
}

// transmit sends the first n chunks of the outbox and returns how many went.
func (g *Gather) transmit(fd, n int) (int, syscall.Errno) {
	b, step := g.out, g.plan.segments
	messages := 0
	for first := 0; first < n; first += step {
		count := min(step, n-first)
		m := &b.messages[messages].Hdr
		m.Iov = uintptr(unsafe.Pointer(&b.vectors[2*first]))
		m.Iovlen = uint64(2 * count) //nolint:gosec // At most 128.
		m.Control, m.Controllen = 0, 0
		if count > 1 {
			b.control[messages].Attach(m)
		}
		messages++
	}
	g.stats.syscalls.Add(1)
	if g.plan.messages == 1 {
		if _, e := sys.SendMessage(fd, &b.messages[0].Hdr); e != 0 {
			return 0, e
		}
		return n, 0
	}
	done, e := sys.SendBatch(fd, b.messages[:messages])
	return min(done*step, n), e
}

// refused deals with an error of a send and reports whether to try again.
func (g *Gather) refused(subgroup int, e syscall.Errno) bool {
	s := &g.senders[subgroup]
	switch {
	case e == unix.EAGAIN:
		if !s.blocked {
			s.blocked = true
			g.note(s.backlog.Full(s.fd))
			g.note(g.poller.Change(s.fd, g.senderTag(subgroup), unix.EPOLLOUT))
		}
	case e == unix.ENOBUFS:
		g.congested = true
	case g.plan.segments > 1 && (e == unix.EIO || e == unix.EINVAL):
		g.plan.segments = 1 // A device without checksum offload cannot segment.
		return true
	default:
		g.note(fmt.Errorf("multicast through %s: %w", g.device, e))
	}
	return false
}

// writable stops watching a sender that has room again. An error that the
// network reported is cleared: it says nothing about the next datagram.
func (g *Gather) writable(subgroup int) {
	s := &g.senders[subgroup]
	s.blocked = false
	_, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	g.note(err)
	g.note(g.poller.Change(s.fd, g.senderTag(subgroup), 0))
}
