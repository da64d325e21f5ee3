package udp

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
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
	subgroup, done := int(r.Head.Subgroup), 0
	for done < r.Count && g.fault == nil {
		n := g.fill(r, done)
		sent, e := g.transmit(g.senders[subgroup].fd, n, g.plan.segments)
		if e != 0 {
			sent, e = g.again(subgroup, e)
		}
		lost := 0
		if e != 0 {
			lost = g.refused(subgroup, min(n, g.plan.segments), e)
		}
		if sent+lost == 0 {
			break
		}
		g.sent(r, done, sent)
		done += sent + lost
	}
	runtime.KeepAlive(r)
	return done
}

// sent counts the n chunks of a run that the kernel took, behind the first skip.
func (g *Gather) sent(r *fabric.Run, skip, n int) {
	first := int(r.Head.PSN) + skip
	payload := min((first+n)*g.chunk, len(r.Shard)) - min(first*g.chunk, len(r.Shard))
	g.stats.sentChunks.Add(uint64(n))
	g.stats.sentBytes.Add(uint64(n*wire.DataSize + payload)) //nolint:gosec // Lengths.
	g.senders[r.Head.Subgroup].backlog.Sent(n*wire.DataSize + payload)
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

// transmit sends the first n chunks of the outbox, step of them a message, and returns how many
// went. If there is an error, none did.
func (g *Gather) transmit(fd, n, step int) (int, syscall.Errno) {
	b := g.out
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
	if messages == 1 {
		if _, e := sys.SendMessage(fd, &b.messages[0].Hdr); e != 0 {
			return 0, e
		}
		return n, 0
	}
	done, e := sys.SendBatch(fd, b.messages[:messages])
	return min(done*step, n), e
}
