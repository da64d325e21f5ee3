package udp

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// A datagram that the kernel does not take is a datagram that is lost: repairs bring it. An
// interface that is down for a moment, an address that is renewed, an MTU that is lowered or
// what the network says about an earlier datagram must not end a job. Nothing here waits for
// better times: a root's credit runs out soon, and repairs need the same interface. Whether this
// rank is cut off for good is for those to say who watch that ranks are alive.

// lookAgain is how long to wait before looking again for an interface that is gone.
const lookAgain = 100 * time.Millisecond

// mayPass reports whether to try once more what the kernel has refused, because the error may have
// been of something else: what the network said about an earlier datagram is reported once.
func (g *Gather) mayPass(e syscall.Errno) bool {
	if e == unix.ENODEV {
		g.reattach(time.Now())
	}
	r := batch.RefusalOf(e)
	return r == batch.Unreachable || r == batch.TooLarge
}

// refused deals with n chunks that the kernel does not take and reports whether they are
// lost; if not, they will be sent when there is room.
func (g *Gather) refused(subgroup, n int, e syscall.Errno) bool {
	s := &g.senders[subgroup]
	switch batch.RefusalOf(e) {
	case batch.NoRoom:
		if !s.blocked {
			s.blocked = true
			g.note(g.poller.Change(s.FD, g.senderTag(subgroup), unix.EPOLLOUT))
		}
		return false
	case batch.Congested:
		g.congested = true
		return false
	case batch.Defect:
		g.note(fmt.Errorf("multicast through %s: %w", g.options.Interface.Name, e))
		return false
	case batch.Forbidden:
		g.stats.refused.Add(uint64(n))
	case batch.TooLarge:
		g.stats.tooLarge.Add(uint64(n))
	case batch.Unreachable:
		g.stats.unreachable.Add(uint64(n))
	}
	return true
}

// reattach turns to an interface that has been replaced by one of the same name, as drivers and
// bonds do when they start anew: sockets know an interface by its number.
func (g *Gather) reattach(now time.Time) {
	if now.Before(g.sought.Add(lookAgain)) {
		return
	}
	g.sought = now
	ifi, err := net.InterfaceByName(g.options.Interface.Name)
	if err != nil || ifi.Index == g.options.Interface.Index {
		return // It is not back yet.
	}
	old := g.options
	g.options.Interface = ifi
	var errs []error
	for subgroup, fd := range g.receivers {
		_ = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_DROP_MEMBERSHIP, old.membership(subgroup))
		if err := joinGroup(fd, &g.options, subgroup); !errors.Is(err, unix.EADDRINUSE) { // joined the last time
			errs = append(errs, err)
		}
	}
	for subgroup := range g.senders {
		errs = append(errs, sendThrough(g.senders[subgroup].FD, &g.options))
	}
	if errors.Join(errs...) != nil {
		g.options = old // It has gone again: look again later.
	}
}

// writable stops watching a sender that has room again. An error that the
// network reported is cleared: it says nothing about the next datagram.
func (g *Gather) writable(subgroup int) {
	s := &g.senders[subgroup]
	s.blocked = false
	_, err := unix.GetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_ERROR)
	g.note(err)
	g.note(g.poller.Change(s.FD, g.senderTag(subgroup), 0))
}
