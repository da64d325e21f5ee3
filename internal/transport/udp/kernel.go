package udp

import (
	"fmt"
	"math/bits"
	"net"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// slots is the most chunks that cross the kernel in one call, each way. Linux
// merges and splits at most 64 datagrams (UDP_GRO_CNT_MAX, UDP_MAX_SEGMENTS).
const slots = 64

// kernel is what the kernel can do for us.
type kernel struct {
	segment bool // UDP_SEGMENT, Linux 4.18: one buffer becomes many datagrams
	merge   bool // UDP_GRO, Linux 5.0: many datagrams become one buffer
	batch   bool // sendmmsg and recvmmsg, Linux 3.0; sandboxes may lack them
}

func probe() (kernel, error) {
	fd, err := newSocket()
	if err != nil {
		return kernel{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	return kernel{
		segment: unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) == nil,
		merge:   unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) == nil,
		batch:   sys.HasBatches(fd),
	}, nil
}

// plan says how chunks cross the kernel.
type plan struct {
	segments int  // chunks a message, sending
	messages int  // messages a call
	merge    bool // receive merged datagrams
	notes    []string
}

// plan takes the wanted step, or the best that there is. Datagrams so large
// that one message holds no two of them go in batches.
func (k kernel) plan(want Offload, chunk int) (plan, error) {
	datagram := chunk + wire.DataSize
	fit := min(slots, maxDatagram/datagram)
	p := plan{segments: 1, messages: 1}
	gso := fit > 1 && (want == OffloadAuto || want == OffloadGSO)
	if gso && k.segment {
		p.segments = fit
	}
	if gso && k.merge {
		p.merge = true
	}
	if want != OffloadSingle && k.batch {
		p.messages = batch(chunk)
	}
	missing := func(what string) error {
		if want != OffloadAuto {
			return fmt.Errorf("%w: udp: offload %v: no %s", fabric.ErrUnavailable, want, what)
		}
		p.notes = append(p.notes, "no "+what)
		return nil
	}
	if gso && !k.segment {
		if err := missing("UDP_SEGMENT before Linux 4.18: datagrams are sent without segmentation offload"); err != nil {
			return plan{}, err
		}
	}
	if gso && !k.merge {
		if err := missing("UDP_GRO before Linux 5.0: datagrams are received one by one"); err != nil {
			return plan{}, err
		}
	}
	if want != OffloadSingle && !k.batch {
		if err := missing("sendmmsg and recvmmsg here: one message a call"); err != nil {
			return plan{}, err
		}
	}
	return p, nil
}

// batch is how many messages to move in a call: as many as there are slots,
// but no more than fit in the second-level cache, where a receiver that
// guessed wrong has to move them again.
func batch(chunk int) int {
	const cache = 512 << 10
	return max(1, min(slots, cache/chunk))
}

// defaultWindow bounds what Traits promises to hold unless told otherwise. More
// never hurt here: 4 ranks on 2 cores took 48 ms for 16 MiB each with 1 MiB
// under way, 38 with 2 or 3; and it saves credits.
const defaultWindow = 8 << 20

// window returns how many chunks a socket's queue holds for certain while
// nobody reads it. rcvBuf is what SO_RCVBUF reads back, which is what the
// kernel compares with the memory, not the payload, of queued datagrams. Up to
// a quarter of it stays charged for datagrams that were read already.
func window(rcvBuf, chunk, limit int, ifi *net.Interface) int {
	room := rcvBuf - rcvBuf/4
	return max(1, min(room/footprint(chunk, ifi), limit/chunk))
}

// footprint estimates, from above, the kernel memory that a received chunk takes.
// On lo a datagram of 16 KiB or more lies in pages that the sender filled (832
// bytes over its length on Linux 6.18); else a driver gave it a power of two or a page.
func footprint(chunk int, ifi *net.Interface) int {
	const (
		page     = 4096
		overhead = 1024 // struct sk_buff, struct skb_shared_info, headers and headroom
	)
	size := chunk + wire.DataSize + udpHeader + ipHeader
	if ifi.Flags&net.FlagLoopback != 0 && size > 16<<10 {
		return size + overhead
	}
	return max(page, 1<<bits.Len(uint(size+overhead/2-1))) + overhead/2
}
