package switchd

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// leastStrangers is for the ranks of a host, which come all at once.
	leastStrangers = 64
	// strangerTime is how long a stranger has its place for certain, and how long it has gone by the time that the place
	// of one who has proven nothing is free again: so many proofs a second and network are looked at.
	strangerTime = time.Second
)

// strangers are the connections that have not proven a secret yet, where there are some, or asked for a job: few of each
// network, so that others have places too.
type strangers struct {
	limit int // of a network

	mu  sync.Mutex
	all map[netip.Prefix][]*early // oldest first
}

// early is one of them.
type early struct {
	conn  net.Conn
	from  netip.Prefix
	since time.Time
}

func newStrangers(members int) *strangers {
	return &strangers{limit: max(leastStrangers, members/8), all: map[netip.Prefix][]*early{}}
}

// network is what may be one host's: an IPv4 address, or the 64 bits of an IPv6 one that it cannot
// choose.
func network(conn net.Conn) netip.Prefix {
	addr := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("") // sessions are TCP
	p, _ := addr.Prefix(min(addr.BitLen(), 64))                                     // never too long
	return p
}

// enter gives a connection a place of its network. If all are taken, enter hangs up on the oldest, if he has had his
// time, and gives his place; else there is none.
func (s *strangers) enter(conn net.Conn, now time.Time) (one *early, ok bool) {
	one = &early{conn, network(conn), now}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.all[one.from]
	if len(there) >= s.limit {
		if now.Sub(there[0].since) < strangerTime {
			return nil, false
		}
		_ = there[0].conn.Close() // he may have gone
		there = there[1:]
	}
	s.all[one.from] = append(there, one)
	return one, true
}

// leave frees a place.
func (s *strangers) leave(one *early) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.all[one.from], func(other *early) bool { return other == one })
	if s.all[one.from] = left; len(left) == 0 {
		delete(s.all, one.from)
	}
}

// failed frees the place of one who was to prove a secret and has not, when he has had his time.
func (s *strangers) failed(one *early, now time.Time) {
	time.AfterFunc(one.since.Add(strangerTime).Sub(now), func() { s.leave(one) })
}
