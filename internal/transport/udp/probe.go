package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
)

// Prober finds out what the paths between ranks carry, by datagrams of chosen sizes. One goroutine
// at a time may use it.
type Prober struct {
	o        Options
	receiver int // of multicast
	sender   int // of multicast
	unicast  int // both ways
	heard    []Heard
	buf      []byte
}

// Heard is the largest packet that has arrived from a rank on either way while Listen ran last, in
// bytes with IPv4's and UDP's headers; 0: none.
type Heard struct{ Multicast, Unicast int }

// Largest packets of UDP over IPv4, and the smallest that holds a probe.
const (
	MaxPacket = 65535
	MinPacket = ipHeader + udpHeader + wire.ProbeSize
)

// OpenProber returns a prober for the group that Open will be given the same options for. It
// receives from now on.
func OpenProber(o Options) (_ *Prober, err error) { // once a join
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := &Prober{o: o, receiver: -1, sender: -1, unicast: -1, heard: make([]Heard, o.Size), buf: make([]byte, MaxPacket)}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.receiver, err = batch.Open(unix.AF_INET); err != nil {
		return nil, err
	}
	if err := receive(p.receiver, &p.o, 0); err != nil {
		return nil, err
	}
	if p.sender, err = openSender(&p.o, 0); err != nil {
		return nil, err
	}
	if p.unicast, err = batch.Open(unix.AF_INET); err != nil {
		return nil, err
	}
	if err := unix.Bind(p.unicast, &unix.SockaddrInet4{}); err != nil {
		return nil, fmt.Errorf("bind UDP socket: %w", err)
	}
	for _, fd := range []int{p.sender, p.unicast} {
		// What the kernel believes to know of a path is what is to be found out.
		if err := batch.Set(fd, batch.Option{Name: "IP_MTU_DISCOVER", Level: unix.IPPROTO_IP, Opt: unix.IP_MTU_DISCOVER, Value: unix.IP_PMTUDISC_PROBE}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Port returns the port to which others send unicast probes.
func (p *Prober) Port() (uint16, error) {
	at, err := unix.Getsockname(p.unicast)
	if err != nil {
		return 0, fmt.Errorf("port of a UDP socket: %w", err)
	}
	return uint16(at.(*unix.SockaddrInet4).Port), nil // as it was opened
}

// Multicast sends a probe in a packet of so many bytes to all ranks. An error says that this host
// did not send it.
func (p *Prober) Multicast(packet int) error {
	return ignoreLoss(unix.Send(p.sender, p.probe(packet, false), 0))
}

// Unicast sends a probe to the port of one rank.
func (p *Prober) Unicast(to netip.AddrPort, packet int) error {
	at := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	return ignoreLoss(unix.Sendto(p.unicast, p.probe(packet, true), 0, at))
}

// ignoreLoss forgives what a later probe may mend: a full queue, or what others said of earlier ones.
func ignoreLoss(err error) error {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}

func (p *Prober) probe(packet int, unicast bool) []byte {
	packet = max(MinPacket, min(packet, MaxPacket))
	h := wire.Probe{Unicast: unicast, Job: p.o.Job, Rank: uint16(p.o.Rank), Packet: uint32(packet)}
	b := p.buf[:packet-ipHeader-udpHeader]
	clear(b)
	h.Put(b)
	return b
}

// Listen takes the probes that have arrived since it ran last, and more until enough, which sees
// each of them, says so, or for so long.
func (p *Prober) Listen(most time.Duration, enough func([]Heard) bool) {
	clear(p.heard)
	for end := time.Now().Add(most); ; {
		p.drain(p.receiver)
		p.drain(p.unicast)
		left := time.Until(end)
		if enough(p.heard) || left <= 0 {
			return
		}
		fds := []unix.PollFd{{Fd: int32(p.receiver), Events: unix.POLLIN}, {Fd: int32(p.unicast), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, int(left.Milliseconds())+1) // interrupted: look again
	}
}

// drain takes what has arrived at a socket, so much at most that strangers cannot keep it busy.
func (p *Prober) drain(fd int) {
	var b [wire.ProbeSize]byte
	var h wire.Probe
	for range 16 * max(len(p.heard), 64) {
		n, at, err := unix.Recvfrom(fd, b[:], unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil || n < wire.ProbeSize || h.Get(b[:]) != nil {
			continue
		}
		if h.Job != p.o.Job || int(h.Rank) >= len(p.heard) || int(h.Packet) != n+ipHeader+udpHeader {
			continue
		}
		if fd == p.receiver && !p.o.sentBy(int(h.Rank), at) {
			continue // The group's sockets would refuse it.
		}
		if from := &p.heard[h.Rank]; h.Unicast {
			from.Unicast = max(from.Unicast, int(h.Packet))
		} else {
			from.Multicast = max(from.Multicast, int(h.Packet))
		}
	}
}

// Heard returns what arrived while Listen ran last, by rank.
func (p *Prober) Heard() []Heard { return p.heard }

// Close ends the prober.
func (p *Prober) Close() {
	for _, fd := range []int{p.receiver, p.sender, p.unicast} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
