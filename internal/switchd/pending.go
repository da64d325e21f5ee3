package switchd

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// minPending is for the ranks of a host, which come all at once.
	minPending = 64
	// pendingTime is how long a stranger has its place for certain, and how long it has gone by the time that the place
	// of one who has proven nothing is free again: so many proofs a second and network are looked at.
	pendingTime = time.Second
)

// pendingConns are the connections that have not proven a secret yet, where there are some, or asked for a job: few of
// each network, so that others have places too.
type pendingConns struct {
	limit int // of a network

	mu  sync.Mutex
	all map[netip.Prefix][]*pendingConn // oldest first
}

// pendingConn is one of them.
type pendingConn struct {
	conn  net.Conn
	from  netip.Prefix
	since time.Time
}

func newPendingConns(members int) *pendingConns {
	return &pendingConns{limit: max(minPending, members/8), all: map[netip.Prefix][]*pendingConn{}}
}

// network is what may be one host's: an IPv4 address, or the 64 bits of an IPv6 one that it cannot
// choose.
func network(conn net.Conn) netip.Prefix {
	addr := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("") // sessions are TCP
	p, _ := addr.Prefix(min(addr.BitLen(), 64))                                     // never too long
	return p
}

// enter gives a connection a place of its network. If all are taken, enter hangs up on the oldest, if he has had its
// time, and gives its place; else there is none.
func (s *pendingConns) enter(conn net.Conn, now time.Time) (one *pendingConn, ok bool) {
	one = &pendingConn{conn, network(conn), now}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.all[one.from]
	if len(there) >= s.limit {
		if now.Sub(there[0].since) < pendingTime {
			return nil, false
		}
		_ = there[0].conn.Close() // it may have gone
		there = there[1:]
	}
	s.all[one.from] = append(there, one)
	return one, true
}

// leave frees a place.
func (s *pendingConns) leave(one *pendingConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.all[one.from], func(other *pendingConn) bool { return other == one })
	if s.all[one.from] = left; len(left) == 0 {
		delete(s.all, one.from)
	}
}

// failed frees the place of one that was to prove a secret and has not, when it has had its time.
func (s *pendingConns) failed(one *pendingConn, now time.Time) {
	time.AfterFunc(one.since.Add(pendingTime).Sub(now), func() { s.leave(one) })
}
