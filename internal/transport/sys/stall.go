package sys

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
)

// StallError says that a connection carries nothing any more although neither end has closed it: sent
// bytes are not acknowledged however often they are repeated.
type StallError struct {
	Segment int           // payload bytes of the largest segments, which do not arrive
	For     time.Duration // how long nothing has been acknowledged
	RDMA    bool          // they are packets of an RDMA device, not segments of TCP
}

// Error says what does not arrive, and since when.
func (e *StallError) Error() string {
	return fmt.Sprintf("%s of %d bytes have not been acknowledged for %v", e.what(), e.Segment,
		e.For.Round(10*time.Millisecond))
}

func (e *StallError) what() string {
	if e.RDMA {
		return "RDMA packets"
	}
	return "TCP segments"
}

// Stall notices connections that stall. TCP itself gives up after net.ipv4.tcp_retries2 tries, a
// quarter of an hour, and names no cause. TCP_USER_TIMEOUT is sooner, but it also ends a connection
// to a peer that merely has no room, such as a rank that posts its operation late. The zero value is
// ready; each connection has its own.
type Stall struct {
	acked uint64       // bytes acknowledged when the current stall was first seen
	found owntime.Wait // since then; it has not begun where there is none
}

// Check looks at a connection and returns a StallError once bytes have been in flight for at
// least limit, in which this process ran, and none of them was acknowledged. It is meant to be called
// each StallPause. It makes one system call.
func (s *Stall) Check(fd int, now time.Time, limit time.Duration) *StallError {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	// A window without room for a segment means that the peer does not read, which is its right.
	// Kernels before 5.4 do not tell the window and leave it 0, so they find no stall.
	if err != nil || i.Unacked == 0 || i.Retransmits == 0 || i.Snd_wnd < i.Snd_mss {
		s.found.Over()
		return nil
	}
	if i.Bytes_acked != s.acked {
		s.found.Over()
		s.acked = i.Bytes_acked
	}
	if stalled := s.found.Elapsed(now, 2*StallPause(limit)); stalled >= limit {
		return &StallError{Segment: int(i.Snd_mss), For: stalled}
	}
	return nil
}

// StallPause is how long to wait between two looks at connections that may not
// stall for longer than limit.
func StallPause(limit time.Duration) time.Duration { return min(limit/8, 500*time.Millisecond) }
