package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// defaultTimeout is the silence after which a side counts as lost, by default.
const defaultTimeout = 3 * time.Second

// ErrDraining says that the switch wants its members to leave: it will end.
var ErrDraining = errors.New("the switch drains")

// ErrClosed says that the session was closed on this side.
var ErrClosed = errors.New("session closed")

// Hello says who joins what.
type Hello struct {
	Job          uint64 // the communicator
	Epoch        uint32 // counts up with every attempt of the communicator to join
	Ranks        int
	Rank         int           // of no meaning if Child is set
	InGroup      *int          // this rank's number in the whole group, which texts name; nil: Rank
	Child        bool          // a switch that joins its parent; Has tells on behalf of whom
	Reproducible bool          // sum in members' order
	Secret       string        // MCAST_SECRET; empty: none
	Encrypt      bool          // hide what datagrams carry, in both directions; takes a secret
	Timeout      time.Duration // silence after which the switch counts as lost, 500 ms or more; 0: defaultTimeout
	Chunk        int           // bound of the payload of a datagram in bytes; 0: what the paths carry
	Offload      batch.Offload
	DSCP         int     // of datagrams to the switch, see sys.Mark
	Network      Network // nil: the kernel
}

// Session is a member's end. Any goroutine may call its methods.
type Session struct {
	line     *line
	hello    Hello
	request  Request // that hello became
	sockets  []*datagram.Socket
	datagram int // the largest of all paths
	keys     *keys
	seals    []Seals // by stripe; nil without a secret

	mu     sync.Mutex
	terms  innetwork.Terms
	number int
	err    error
	ready  chan struct{} // closed with terms
	lost   chan struct{} // closed with err
}

// Dial joins a job at the switch at addr (host:port). It returns when the switch
// has admitted this member and the datagram sockets are connected, long before all
// ranks are there; Ready waits for that. The error is an *Error if the switch refuses.
func Dial(ctx context.Context, addr string, h Hello) (*Session, error) {
	if h.Timeout == 0 {
		h.Timeout = defaultTimeout
	}
	h.Timeout = max(h.Timeout, minTimeout)
	if h.Network == nil {
		h.Network = Kernel{}
	}
	if h.Secret != "" {
		if err := (Secret{Text: h.Secret}).Check(); err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
	} else if h.Encrypt {
		return nil, fmt.Errorf("session: %w", errNoKey)
	}
	limit := 3 * h.Timeout // a handshake of two round trips
	ctx, cancel := owntime.WithTimeout(ctx, limit, fmt.Errorf("timeout: not joined within %v", limit))
	defer cancel()
	connecting, connected := context.WithTimeout(ctx, limit) // which has a deadline, for its addresses to share
	conn, err := h.Network.Dial(connecting, addr)
	connected()
	if err != nil {
		return nil, err
	}
	s := &Session{
		line: newLine(conn, h.Timeout), hello: h,
		ready: make(chan struct{}), lost: make(chan struct{}),
	}
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() }) // a deadline would not outlast the next wait
	err = s.join()
	if !unwatch() {
		err = context.Cause(ctx) // the line was closed for it: its own error says only that
	}
	if err != nil {
		s.line.close()
		return nil, errors.Join(fmt.Errorf("join the switch at %s: %w", addr, err), s.closeSockets())
	}
	s.line.ping()
	s.line.wg.Go(s.listen)
	return s, nil
}

// join does what comes before the notes.
func (s *Session) join() error {
	if err := s.greet(); err != nil {
		return err
	}
	o, err := s.ask()
	if err != nil {
		return err
	}
	if err := s.open(o.Ports); err != nil {
		return err
	}
	mine := Sockets{Datagram: s.datagram}
	for i, socket := range s.sockets {
		mine.Ports = append(mine.Ports, socket.Port())
		if n := socket.Queue(s.datagram); i == 0 || n < mine.Queue {
			mine.Queue = n
		}
	}
	return s.line.write(mine)
}

// greet learns that a switch is at the other end and, with a secret, that it knows the same one.
func (s *Session) greet() error {
	var g greeting
	if err := s.line.read(&g, s.hello.Timeout); err != nil {
		return fmt.Errorf("it does not greet as a switch: %w", err)
	}
	if g.Magic != magic || g.Version != Version {
		return fmt.Errorf("it greets as %q, version %d; want %q, version %d", g.Magic, g.Version, magic, Version)
	}
	switch {
	case g.Sealed && s.hello.Secret == "":
		return errors.New("it admits only members with a secret: set MCAST_SECRET")
	case s.hello.Secret == "":
		return nil
	case !g.Sealed:
		return errors.New("MCAST_SECRET is set, but the switch has no secrets")
	}
	return s.prove()
}

// prove proves the secret to the switch and has it proven.
func (s *Session) prove() error {
	id, err := identity.New(s.hello.Secret)
	if err != nil {
		return err
	}
	plain := s.line.conn
	if err := plain.SetDeadline(time.Time{}); err != nil {
		return err
	}
	late := owntime.AfterFunc(s.hello.Timeout, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	defer late.Stop()
	proof, err := id.Present(plain)
	if errors.Is(err, identity.ErrOther) {
		return fmt.Errorf("the switch does not know this secret: %w", err)
	}
	if err != nil {
		return fmt.Errorf("the switch does not prove MCAST_SECRET: %w", err)
	}
	conn, keys, err := follow(proof)
	if err == nil {
		s.line.conn, s.keys = conn, keys
	}
	return err
}

// ask requests to join and reads the offer.
func (s *Session) ask() (o offer, err error) {
	h := &s.hello
	r := Request{
		Version: Version, Job: h.Job, Epoch: h.Epoch, Ranks: h.Ranks, Rank: h.Rank, InGroup: h.InGroup, Child: h.Child,
		Reproducible: h.Reproducible, Encrypt: h.Encrypt, Milliseconds: h.Timeout.Milliseconds(),
	}
	if err := r.check(); err != nil {
		return o, fmt.Errorf("session: %w", err)
	}
	s.request = r
	if err := s.line.write(&r); err != nil {
		return o, err
	}
	if err := s.line.read(&o, h.Timeout); err != nil {
		return o, err
	}
	if o.Error != "" {
		return o, errorOf(o.Error, o.Cause)
	}
	if len(o.Ports) < 1 || len(o.Ports) > 256 {
		return o, fmt.Errorf("it offers %d stripes; want 1 to 256", len(o.Ports))
	}
	return o, nil
}

// open connects a socket with each of the switch's.
func (s *Session) open(ports []uint16) error {
	local, node := addrOf(s.line.conn.LocalAddr()), addrOf(s.line.conn.RemoteAddr())
	for _, port := range ports {
		socket, err := s.hello.Network.Socket(datagram.Options{Local: local, Offload: s.hello.Offload, DSCP: s.hello.DSCP})
		if err != nil {
			return err
		}
		s.sockets = append(s.sockets, socket)
		if err := socket.Connect(netip.AddrPortFrom(node, port)); err != nil {
			return err
		}
		if n := socket.MTU(); s.datagram == 0 || n < s.datagram {
			s.datagram = n
		}
	}
	if s.keys != nil {
		s.seals = newSeals(kindOf(s.hello.Encrypt), s.keys, len(ports))
	}
	if s.hello.Chunk > 0 {
		s.datagram = min(s.datagram, s.Head()+s.hello.Chunk)
	}
	return nil
}

func addrOf(a net.Addr) netip.Addr {
	return a.(*net.TCPAddr).AddrPort().Addr().Unmap() // lines are TCP
}

// listen takes the switch's notes until the session ends.
func (s *Session) listen() {
	for {
		n, err := s.line.next()
		if err == nil {
			err = s.handle(&n)
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

func (s *Session) handle(n *note) error {
	switch n.Kind {
	case ready:
		if err := n.Terms.check(s.hello.Ranks, len(s.sockets), s.datagram, s.Head()); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.terms.Job != 0 {
			return fmt.Errorf("a second note %q", ready)
		}
		s.terms, s.number = n.Terms.unpack(), n.Terms.Number
		for i := range s.seals {
			s.seals[i].Begin(s.terms.First)
		}
		close(s.ready)
		return nil
	case drain:
		return ErrDraining
	case failed:
		return errorOf(n.Text, n.Cause)
	case bye:
		return errors.New("the switch ended")
	}
	return fmt.Errorf("a note of kind %q", n.Kind)
}

func (s *Session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.lost)
	}
}

// Sockets returns the connected datagram sockets, by stripe. They belong to the
// session, which closes them; one goroutine at a time may use them.
func (s *Session) Sockets() []*datagram.Socket { return s.sockets }

// Local returns the address of this host that the session uses.
func (s *Session) Local() netip.Addr { return addrOf(s.line.conn.LocalAddr()) }

// Datagram returns the largest UDP payload in bytes that all paths to the switch carry.
func (s *Session) Datagram() int { return s.datagram }

// Head returns the length of what precedes a payload in a datagram: header and tag, in bytes.
func (s *Session) Head() int {
	return s.keys.head()
}

// Seals returns the sealers for a stripe's datagrams to the switch and from it, always the same; none without a secret.
func (s *Session) Seals(stripe int) Seals { return of(s.seals, stripe) }

// Ready waits until all ranks are there and returns the terms, without timers,
// and this member's number. It ends early if the session does.
func (s *Session) Ready(ctx context.Context) (t innetwork.Terms, number int, err error) {
	select {
	case <-s.ready:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.terms, s.number, nil
	case <-s.lost:
		return t, 0, s.Err()
	case <-ctx.Done():
		return t, 0, fmt.Errorf("not all ranks have joined the switch: %w", context.Cause(ctx))
	}
}

// ReportBelow tells the parent which ranks have joined below a child switch.
func (s *Session) ReportBelow(b Below) error { return s.line.write(note{Kind: below, Below: &b}) }

// Lost is closed when the session has ended: the switch drains, reports an error, or is gone.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err returns why the session ended, or nil: ErrDraining, an *Error of the
// switch, ErrClosed, or what happened to the connection.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session. why, if not nil, is told to the other members
// as the reason that the job cannot go on. Nobody may use the sockets any more.
func (s *Session) Close(why error) error {
	last := note{Kind: bye}
	if why != nil {
		last = note{Kind: failed, Text: why.Error()}
		if e, ok := errors.AsType[*Error](why); ok {
			last.Cause = e.cause()
		}
	}
	s.mu.Lock()
	ended := s.err != nil
	s.mu.Unlock()
	s.end(ErrClosed)
	if !ended || errors.Is(s.Err(), ErrDraining) {
		_ = s.line.write(last) // if it does not arrive, the end of the connection does
	}
	s.line.close()
	return s.closeSockets()
}

func (s *Session) closeSockets() error {
	var errs []error
	for _, socket := range s.sockets {
		errs = append(errs, socket.Close())
	}
	return errors.Join(errs...)
}
