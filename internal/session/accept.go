package session

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

// Peer is the switch's end of a session. One goroutine reads (Accept, Offer,
// Next), any may call the rest.
type Peer struct {
	Request
	Tenant  Secret // what the member proved to know; empty without secrets
	Sockets        // what the member told of its own, after Offer

	line    *line
	keys    *keys
	offered bool
	seals   []Seals // by stripe, after Offer; nil without a secret
}

// Accept hears what the member at the other end of conn asks for. It waits at most within for that,
// and before, with a ring, as long for the proof of one of its secrets. Offer waits as long for the answer; later the
// peer waits as long as the member asks for. The connection belongs to the peer; Accept closes it if it fails.
func Accept(conn net.Conn, ring *Ring, within time.Duration) (*Peer, error) {
	p := &Peer{line: newLine(conn, within)}
	p.line.largest = maxEarly
	err := p.accept(ring)
	if err == nil {
		return p, nil
	}
	var no *Error
	if errors.As(err, &no) {
		_ = p.line.write(offer{Error: no.Text}) // best effort
	}
	p.line.close()
	return nil, err
}

func (p *Peer) accept(ring *Ring) error {
	if err := p.line.write(greeting{Magic: magic, Version: Version, Sealed: ring != nil}); err != nil {
		return err
	}
	if ring != nil {
		if err := p.recognize(ring); err != nil {
			return err
		}
	}
	if err := p.line.read(&p.Request, p.line.timeout); err != nil {
		return fmt.Errorf("no request: %w", err)
	}
	if err := p.check(); err != nil {
		return &Error{Text: err.Error()}
	}
	if p.Encrypt && ring == nil {
		return &Error{Text: errNoKey.Error()}
	}
	return nil
}

// recognize learns which tenant the member belongs to, and proves to it that the switch knows the same secret.
func (p *Peer) recognize(ring *Ring) error {
	g, secret, err := ring.ring.Recognize(p.line.conn, p.line.timeout)
	if err != nil {
		return err
	}
	p.Tenant = ring.secrets[secret]
	conn, keys, err := follow(g)
	if err == nil {
		p.line.conn, p.keys = conn, keys
	}
	return err
}

// minPayload is the least, in bytes, that a datagram must carry after its head. Every IP path
// carries more.
const minPayload = 64

// Offer admits the member: it names the ports of the switch's sockets, by
// stripe, and takes what the member tells of its own. From then on the member
// is shown that the switch is alive. Another goroutine may Close the peer meanwhile.
func (p *Peer) Offer(ports []uint16) error {
	p.offered = true
	if err := p.line.write(offer{Ports: ports}); err != nil {
		return err
	}
	if err := p.line.read(&p.Sockets, p.line.timeout); err != nil {
		return err
	}
	if len(p.Ports) != len(ports) {
		return fmt.Errorf("the member has sockets for %d stripes; want %d", len(p.Ports), len(ports))
	}
	if p.Queue < 1 || p.Datagram-p.Head() < minPayload {
		return fmt.Errorf("the member's sockets hold %d datagrams of %d bytes; want at least 1 of %d", p.Queue, p.Datagram,
			p.Head()+minPayload)
	}
	if p.keys != nil {
		p.seals = newSeals(kindOf(p.Encrypt), p.keys, len(ports))
	}
	p.line.timeout, p.line.largest = p.Timeout(), maxFrame
	p.line.ping()
	return nil
}

// Refuse tells the member why it is not admitted, and ends the session.
func (p *Peer) Refuse(e *Error) {
	if p.offered {
		_ = p.Fail(e) // best effort
	} else {
		_ = p.line.write(offer{Error: e.Text, Cause: e.cause()}) // best effort
	}
	p.Close()
}

// Next waits for news of the member: the ranks below it, if it is a switch. An error is the end of
// the session: ErrClosed if the member left, an *Error with its reason, or the failure of the
// connection.
func (p *Peer) Next() (Below, error) {
	n, err := p.line.next()
	if err != nil {
		return Below{}, err
	}
	switch {
	case n.Kind == below && p.Child && n.Below != nil:
		return *n.Below, nil
	case n.Kind == bye:
		return Below{}, ErrClosed
	case n.Kind == failed:
		return Below{}, errorOf(n.Text, n.Cause)
	}
	return Below{}, fmt.Errorf("a note of kind %q", n.Kind)
}

// Ready tells the member that all ranks are there, the terms and its number.
func (p *Peer) Ready(t innetwork.Terms, number int) error {
	return p.line.write(note{Kind: ready, Terms: pack(t, number)})
}

// Drain asks the member to leave.
func (p *Peer) Drain() error { return p.line.write(note{Kind: drain}) }

// Fail tells the member why its job has ended.
func (p *Peer) Fail(e *Error) error {
	return p.line.write(note{Kind: failed, Text: e.Text, Cause: e.cause()})
}

// Close ends the session; what the member was told before still arrives.
func (p *Peer) Close() { p.line.close() }

// Name is what people call the member: the rank in its group, or where it is, if it is a switch.
func (p *Peer) Name() string {
	if p.Child {
		return NodeAt(p.Remote())
	}
	return fmt.Sprintf("rank %d", p.Named())
}

// Head returns the length of what precedes a payload in a datagram: header and tag, in bytes.
func (p *Peer) Head() int {
	return p.keys.head()
}

// Seals returns the sealers for a stripe's datagrams to the member and from it, always the same; none without a secret.
func (p *Peer) Seals(stripe int) Seals { return of(p.seals, stripe) }

// Local is the switch's address, as the member sees it; Remote the member's.
func (p *Peer) Local() netip.Addr { return addrOf(p.line.conn.LocalAddr()) }

// Remote is the member's address.
func (p *Peer) Remote() netip.Addr { return addrOf(p.line.conn.RemoteAddr()) }

// Delay is the shortest round trip that the kernel has measured on the connection; 0 if it has not.
func (p *Peer) Delay() time.Duration {
	conn, ok := p.line.conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	var delay time.Duration
	_ = raw.Control(func(fd uintptr) { // closed: 0
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			delay = time.Duration(info.Min_rtt) * time.Microsecond
		}
	})
	return delay
}
