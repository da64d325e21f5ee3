package udp

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A datagram that the kernel does not take is a datagram that is lost: repairs bring it. An
// interface that is down for a moment, an address that is renewed, an MTU that is lowered or
// what the network says about an earlier datagram must not end a job. Nothing here waits for
// better times: a root's credit runs out soon, and repairs need the same interface. Whether this
// rank is cut off for good is for those to say who watch that ranks are alive.

// lookAgain is how long to wait before looking again for an interface that is gone.
const lookAgain = 100 * time.Millisecond

// again sends the first chunk of the outbox once more, alone, where an error may have been of
// something else: what the network said about an earlier datagram is reported once, and without
// segmentation the kernel says what is really wrong. It returns the error that stands.
func (g *Gather) again(subgroup int, e syscall.Errno) (int, syscall.Errno) {
	switch e {
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EBADF, unix.EFAULT, unix.ENOTSOCK:
		return 0, e
	case unix.EIO:
		g.plan.segments = 1 // A device without checksum offload cannot segment.
	case unix.ENODEV:
		g.reattach(time.Now())
	}
	return g.transmit(g.senders[subgroup].fd, 1, 1)
}

// refused deals with n chunks that the kernel does not take and returns how many of them are
// lost; those that are not will be sent when there is room.
func (g *Gather) refused(subgroup, n int, e syscall.Errno) (lost int) {
	s := &g.senders[subgroup]
	switch e {
	case unix.EAGAIN:
		if !s.blocked {
			s.blocked = true
			g.note(s.backlog.Full(s.fd))
			g.note(g.poller.Change(s.fd, g.senderTag(subgroup), unix.EPOLLOUT))
		}
		return 0
	case unix.ENOBUFS, unix.ENOMEM:
		g.congested = true
		return 0
	case unix.EBADF, unix.EFAULT, unix.ENOTSOCK: // The call is wrong, not the network.
		g.note(fmt.Errorf("multicast through %s: %w", g.options.Interface.Name, e))
		return 0
	case unix.EPERM:
		g.stats.refused.Add(uint64(n)) //nolint:gosec // At most 64.
	case unix.EMSGSIZE:
		g.stats.tooLarge.Add(uint64(n)) //nolint:gosec // At most 64.
	default:
		g.stats.unreachable.Add(uint64(n)) //nolint:gosec // At most 64.
	}
	return n
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
		errs = append(errs, sendThrough(g.senders[subgroup].fd, &g.options))
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
	_, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	g.note(err)
	g.note(g.poller.Change(s.fd, g.senderTag(subgroup), 0))
}
