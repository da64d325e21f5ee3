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

// retryRefused reports whether to try once more what the kernel has refused, because the error may have
// been of something else: what the network said about an earlier datagram is reported once.
func (g *Gather) retryRefused(e syscall.Errno) bool {
	r := batch.RefusalOf(e)
	if r == batch.Unreachable { // ENODEV, or of IPv6, ENETUNREACH
		g.reattach(time.Now())
	}
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
			g.Note(g.poller.Change(s.FD, g.senderTag(subgroup), unix.EPOLLOUT))
		}
		return false
	case batch.Congested:
		g.congested = true
		return false
	case batch.Defect:
		g.Note(fmt.Errorf("multicast through %s: %w", g.options.on(subgroup).Interface.Name, e))
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
	if now.Before(g.lastReattach.Add(lookAgain)) {
		return
	}
	g.lastReattach = now
	for number := range len(g.options.Rails) + 1 {
		at := &g.options.Interface
		if number > 0 {
			at = &g.options.Rails[number-1].Interface
		}
		old := *at
		ifi, err := net.InterfaceByName(old.Name)
		if err != nil || ifi.Index == old.Index {
			continue // It is not back yet, or has not gone.
		}
		*at = ifi
		if g.attach(number, old.Index) != nil {
			*at = old // It has gone again: look again later.
		}
	}
}

// attach has the sockets of an interface's subgroups know it by its number now, and no longer by the
// one before.
func (g *Gather) attach(rail, before int) error {
	var errs []error
	for subgroup, r := range g.receivers {
		if g.options.railOf(subgroup) != rail {
			continue
		}
		o := g.options.on(subgroup)
		_ = o.Family().Leave(r.fd, o.group(subgroup), before)
		if err := joinGroup(r.fd, o, subgroup); !errors.Is(err, unix.EADDRINUSE) { // joined the last time
			errs = append(errs, err)
		}
		errs = append(errs, sendThrough(g.senders[subgroup].FD, o))
	}
	return errors.Join(errs...)
}

// writable stops watching a sender that has room again. An error that the
// network reported is cleared: it says nothing about the next datagram.
func (g *Gather) writable(subgroup int) {
	s := &g.senders[subgroup]
	s.blocked = false
	_, err := unix.GetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_ERROR)
	g.Note(err)
	g.Note(g.poller.Change(s.FD, g.senderTag(subgroup), 0))
}
