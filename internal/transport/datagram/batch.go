package datagram

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// MaxBatch is the most datagrams that are sent, and messages that are received,
// in one call. Linux merges and splits at most 64 datagrams (UDP_GRO_CNT_MAX,
// UDP_MAX_SEGMENTS).
const MaxBatch = 64

// Straight is the payload size from which a hint is worth giving. Below it,
// taking many datagrams in one call is worth more than the copy that a hint saves.
const Straight = 16 << 10

// cache is how many bytes to move in a call at most: what fits in the
// second-level cache, so that whoever looks at them next finds them there.
const cache = 512 << 10

// maxHead is the most bytes of a header.
const maxHead = 64

// stride is the room for one message: no datagram, and nothing that the kernel
// merges, is longer. It is no power of two, lest all messages begin in the same
// sets of the caches.
const stride = maxPacket + 1 + 4096 + 64

// Batch is what a goroutine needs to move datagrams over any number of sockets.
// It belongs to one goroutine at a time; only its counters may be read by others.
type Batch struct {
	head    int // bytes of a datagram's header
	payload int // most bytes of its payload
	out     *outbox
	in      *inbox
	stage   []byte // a stride a message

	added    int              // datagrams to send
	bytes    int              // their length
	payloads [MaxBatch][]byte // keeps them where they are for the kernel
	ends     [MaxBatch]int    // datagrams up to the end of each message
	hint     []byte           // likewise, while the kernel fills it

	Syscalls atomic.Uint64 // made so far
	Refused  atomic.Uint64 // datagrams that were not sent because a firewall or a policy forbids it (EPERM)
}

// outbox is what the kernel reads when we send: one header and two vectors a
// datagram, gathered into messages.
type outbox struct {
	messages [MaxBatch]sys.Mmsghdr
	control  [MaxBatch]sys.SegmentSize
	vectors  [2 * MaxBatch]sys.Iovec
	heads    [MaxBatch][maxHead]byte
}

// inbox is what the kernel fills when we receive, but for the bytes themselves.
type inbox struct {
	messages [MaxBatch]sys.Mmsghdr
	control  [MaxBatch][32]byte
	vectors  [MaxBatch + 2]sys.Iovec // the first message has three when there is a hint
}

// NewBatch reserves the memory for datagrams of a header of head bytes, 1 to
// 64, and up to payload bytes behind it.
func NewBatch(head, payload int) (*Batch, error) {
	if largest := maxPacket - ipv4.headers - head; head < 1 || head > maxHead || payload < 0 || payload > largest {
		return nil, fmt.Errorf("datagram: header of %d and payload of %d bytes: want 1 to %d and 0 to %d", head, payload, maxHead, largest)
	}
	b := &Batch{head: head, payload: payload}
	if err := b.reserve(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	for i := range b.out.heads {
		b.out.vectors[2*i].Set(b.out.heads[i][:head])
	}
	return b, nil
}

func (b *Batch) reserve() (err error) {
	if b.out, err = sys.Map[outbox](); err != nil {
		return err
	}
	if b.in, err = sys.Map[inbox](); err != nil {
		return err
	}
	// Pages that nothing was ever received to cost nothing.
	if b.stage, err = unix.Mmap(-1, 0, MaxBatch*stride, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return fmt.Errorf("reserve %d bytes to receive datagrams: %w", MaxBatch*stride, err)
	}
	return nil
}

// Close gives the memory back. Nothing may be called afterwards.
func (b *Batch) Close() error {
	errs := []error{sys.Unmap(b.out), sys.Unmap(b.in)}
	if b.stage != nil {
		errs = append(errs, unix.Munmap(b.stage))
	}
	b.out, b.in, b.stage = nil, nil, nil
	return errors.Join(errs...)
}
