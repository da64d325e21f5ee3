package batch

import (
	"math/bits"
	"time"

	"golang.org/x/sys/unix"
)

// backlog keeps what a UDP socket has waiting in the queue of its device at about what the device
// sends in 2 ms, as the kernel does for TCP (small queues). All traffic of a host shares that
// queue: with a Reduce-Scatter's window in it, a multicast, or the credit for one, would wait for
// all of that window. The zero value is ready.
type backlog struct {
	size  int // SO_SNDBUF asked for
	bytes int // sent since
	since time.Time
	rate  float64 // bytes a second that the device takes
}

const (
	// FirstBacklog is what a socket asks for before a rate is known, in bytes.
	FirstBacklog   = 256 << 10
	leastBacklog   = 64 << 10
	mostBacklog    = 1 << 20
	backlogTime    = 2 * time.Millisecond
	backlogMeasure = 20 * time.Millisecond // the least time that a measurement takes: links let bursts pass
)

// sent counts bytes that the kernel took.
func (b *backlog) sent(bytes int) { b.bytes += bytes }

// full says that the kernel had no room. Bytes sent between two such moments have left, so they
// give the rate; unless the queue ran dry in between, so a lower rate is believed by and by only.
func (b *backlog) full(fd int, now time.Time) error {
	took := now.Sub(b.since)
	if took < backlogMeasure {
		return nil
	}
	first := b.since.IsZero()
	if !first {
		b.rate = max(float64(b.bytes)/took.Seconds(), b.rate*7/8)
	}
	b.since, b.bytes = now, 0
	size := max(leastBacklog, min(mostBacklog, 1<<bits.Len(uint(b.rate*backlogTime.Seconds()))))
	if first || size == b.size {
		return nil
	}
	b.size = size
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
}
