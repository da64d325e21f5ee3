package world

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// receiver is who has joined a multicast group.
type receiver interface{ host0() *Host }

// prober is a udp.Prober.
type prober struct {
	host  *Host
	o     udp.Options
	port  uint16
	heard []udp.Heard // by rank: its probes that have come

	inbox []probe // of world.mu, as are those below
	bell  chan struct{}
	open  bool
}

type probe struct {
	rank, packet int
	unicast      bool
}

func (p *prober) host0() *Host { return p.host }

func multicastGroup(o *udp.Options) netip.AddrPort { return netip.AddrPortFrom(o.Group, o.Port) }

// Probe implements hostnet.Network.
func (h *Host) Probe(o *udp.Options) (hostnet.Prober, error) {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	if h.world.is(Descriptors, h) {
		return nil, failing("socket", syscall.EMFILE)
	}
	p := &prober{
		host: h, o: *o, port: h.free(), heard: make([]udp.Heard, o.Size), bell: make(chan struct{}, 1), open: true,
	}
	at := multicastGroup(o)
	h.world.members[at] = append(h.world.members[at], p)
	return p, nil
}

// Port implements hostnet.Prober.
func (p *prober) Port() (uint16, error) { return p.port, nil }

// Multicast implements hostnet.Prober.
func (p *prober) Multicast(packet int) error {
	w := p.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.is(Refused, p.host) {
		return failing("send", 1)
	}
	if p.host.stopped != nil || p.host.gone {
		return nil
	}
	for _, m := range w.members[multicastGroup(&p.o)] {
		if to, ok := m.(*prober); ok {
			p.send(to, Multicast, probe{p.o.Rank, packet, false})
		}
	}
	return nil
}

// Unicast implements hostnet.Prober.
func (p *prober) Unicast(to netip.AddrPort, packet int) error {
	w := p.host.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.host.stopped != nil || p.host.gone {
		return nil
	}
	at := p.host.at(to.Addr())
	for _, m := range w.members[multicastGroup(&p.o)] {
		if q, ok := m.(*prober); ok && at != nil && at.machine == q.host.machine && q.port == to.Port() {
			p.send(q, Unicast, probe{p.o.Rank, packet, true})
		}
	}
	return nil
}

func (p *prober) send(to *prober, flow Flow, m probe) {
	w := p.host.world
	if to.o.Job != p.o.Job || to == p || m.packet > w.cfg.MTU || !w.passes(p.host, to.host, flow, m.packet) {
		return
	}
	time.AfterFunc(w.cfg.Delay, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		to.inbox = append(to.inbox, m)
		ring(to.bell)
	})
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Listen implements hostnet.Prober.
func (p *prober) Listen(most time.Duration, enough func([]udp.Heard) bool) {
	late := time.NewTimer(most)
	defer late.Stop()
	clear(p.heard)
	for {
		p.drain()
		if enough(p.heard) {
			return
		}
		select {
		case <-p.bell:
		case <-late.C:
			p.drain()
			enough(p.heard)
			return
		}
	}
}

func (p *prober) drain() {
	p.host.world.mu.Lock()
	defer p.host.world.mu.Unlock()
	if p.host.stopped != nil {
		return
	}
	for _, m := range p.inbox {
		if from := &p.heard[m.rank]; m.unicast {
			from.Unicast = max(from.Unicast, m.packet)
		} else {
			from.Multicast = max(from.Multicast, m.packet)
			if m.packet == udp.SmallPacket {
				from.Small++
			}
		}
	}
	p.inbox = p.inbox[:0]
}

// Heard implements hostnet.Prober.
func (p *prober) Heard() []udp.Heard { return p.heard }

// Close implements hostnet.Prober.
func (p *prober) Close() {
	p.host.world.mu.Lock()
	defer p.host.world.mu.Unlock()
	p.host.world.leave(multicastGroup(&p.o), p)
}

// leave removes a member from a multicast group. w.mu is held.
func (w *World) leave(at netip.AddrPort, who receiver) {
	all := w.members[at]
	for i, m := range all {
		if m == who {
			w.members[at] = append(all[:i:i], all[i+1:]...)
			break
		}
	}
	if len(w.members[at]) == 0 {
		delete(w.members, at)
	}
}
