package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"sync"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Listener is where a rank receives the connections of its peers until they are asked for. It answers
// each greeting, to tell the peer that this rank has the connection. A connection that does not
// open with the right greeting is closed and forgotten.
type Listener struct {
	Network  hostnet.Network
	Log      *slog.Logger
	Identity *identity.Identity
	listener net.Listener
	Key      uint64

	mu      sync.Mutex
	waiting map[caller]net.Conn
	taken   map[caller]bool
	missing map[caller]bool // not greeted yet; nil until expect
	changed chan struct{}   // replaced with every greeting
	errs    map[int]error   // why ranks that are dialled cannot be reached yet
	closed  bool
	way     int    // the last one that was needed to reach a peer, see tryWays
	instead string // why none before it does

	held      []net.Listener // of what comes by the interface that was named, see hold
	elsewhere string         // which connections leave by another interface, and why; empty: none does
}

// caller is who connects, and for what.
type caller struct {
	purpose wire.Purpose
	rank    int
	job     uint64
}

// NewListener listens at all addresses, of IPv4 and IPv6: the addresses that the others use are known only when all
// have met. asked says that this rank names an interface.
func NewListener(n hostnet.Network, asked bool, log *slog.Logger, id *identity.Identity) (*Listener, error) {
	listen := func() (net.Listener, error) { return n.Listen(context.Background(), "tcp", ":0") }
	if b, has := n.(hostnet.Binder); has && asked {
		listen = func() (net.Listener, error) { return b.ListenOn(context.Background(), ":0", "") }
	}
	ln, err := listen()
	if err != nil {
		return nil, fmt.Errorf("cannot listen for peers: %w", sys.Drawn(err))
	}
	hostnet.Private(ln)
	l := &Listener{
		Network: n, Log: log, Identity: id, listener: ln, Key: Random64(), waiting: map[caller]net.Conn{},
		taken:   map[caller]bool{},
		changed: make(chan struct{}), errs: map[int]error{},
	}
	go acceptor.Serve(ln, acceptor.PatienceFor(acceptor.Plain, id != nil), l.greet)
	return l, nil
}

// Random64 returns a number that nobody can guess, never 0.
func Random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	return binary.BigEndian.Uint64(b[:]) | 1
}

// Port is where it listens.
func (l *Listener) Port() int { return l.listener.Addr().(*net.TCPAddr).Port }

func (l *Listener) greet(c net.Conn, proven func() bool) {
	var b [wire.HelloSize]byte
	var h wire.Hello
	greeted, err := l.Identity.Accept(c) // acceptor ends what takes long
	if err != nil {
		return
	}
	if _, err := io.ReadFull(greeted, b[:]); err != nil || h.Get(b[:]) != nil || h.Key != l.Key {
		return
	}
	if proven() {
		hostnet.Private(c)
		l.accept(c, greeted, caller{h.Purpose, int(h.Rank), h.Job})
	}
}

// accept keeps a connection for take. Of two that wait the later one counts: a rank connects again
// only when its first connection has broken. One that comes when the first is in use is refused. greeted
// is where the answer goes.
func (l *Listener) accept(c net.Conn, greeted *identity.Greeting, who caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	answer := wire.Welcome
	if l.taken[who] {
		answer = wire.Refused
	}
	if l.closed {
		_ = c.Close()
		return
	}
	// One byte on a new connection: it does not block.
	if _, err := greeted.Write([]byte{byte(answer)}); err != nil || answer == wire.Refused {
		_ = c.Close()
		return
	}
	on, err := greeted.Follow()
	if err != nil {
		_ = c.Close()
		return
	}
	if old := l.waiting[who]; old != nil {
		_ = old.Close()
	}
	l.waiting[who] = on
	close(l.changed)
	l.changed = make(chan struct{})
	if l.missing != nil {
		delete(l.missing, who)
		l.closeIfComplete()
	}
}

// Expect says by the plan who will connect. Nobody else can once all of them have.
func (l *Listener) Expect(a *team.Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing = map[caller]bool{}
	for _, who := range callersOf(a) {
		if l.waiting[who] == nil && !l.taken[who] {
			l.missing[who] = true
		}
	}
	l.closeIfComplete()
}

// closeIfComplete stops listening when everybody is here. l.mu is held.
func (l *Listener) closeIfComplete() {
	if len(l.missing) == 0 {
		l.stopListening()
	}
}

// take returns the connection that one of these callers has opened, or will open, and the caller. An error names the
// lowest rank.
func (l *Listener) take(ctx context.Context, callers map[caller]bool) (caller, net.Conn, error) {
	for {
		who, c, changed := l.first(callers)
		if c != nil {
			return who, c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return who, nil, &AbsentError{who.rank, fmt.Errorf("has not connected: %w", context.Cause(ctx))}
		}
	}
}

// first takes the connection of one that has connected. If nobody has, it returns who has the lowest
// rank, and what tells of the next greeting.
func (l *Listener) first(callers map[caller]bool) (who caller, c net.Conn, changed chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	who.rank = collective.MaxRanks
	for one := range callers {
		if c = l.waiting[one]; c != nil {
			delete(l.waiting, one)
			l.taken[one] = true
			return one, c, nil
		}
		if one.rank < who.rank {
			who = one
		}
	}
	return who, nil, l.changed
}

// Absent returns the lower ranks that have not connected for a purpose.
func (l *Listener) Absent(a *team.Plan, purpose wire.Purpose) (ranks []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range a.Rank {
		if who := (caller{purpose, r, a.Job}); l.waiting[who] == nil && !l.taken[who] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// failing notes why a rank cannot be reached yet; nil: it can, or nobody tries any more.
func (l *Listener) failing(rank int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.errs[rank] = err; err == nil {
		delete(l.errs, rank)
	}
}

// Unreached returns why ranks cannot be reached yet.
func (l *Listener) Unreached() map[int]error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.errs)
}

// Close closes the listeners and every connection that nobody has asked for.
func (l *Listener) Close() {
	l.mu.Lock()
	l.closed = true
	for who, c := range l.waiting {
		_ = c.Close()
		delete(l.waiting, who)
	}
	l.stopListening()
	l.mu.Unlock()
}
