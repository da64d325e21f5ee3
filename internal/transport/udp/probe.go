package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Prober finds out what the paths between ranks carry, by datagrams of chosen sizes. One goroutine
// at a time may use it.
type Prober struct {
	o            Options
	receivers    []int        // of multicast, by subgroup
	senders      []int        // likewise
	paths        []*ProbePath // likewise
	unicast      int          // both ways
	here         *ProbePath   // of unicast
	bySub        [][]Heard    // of each subgroup
	heard        []Heard      // in all: by multicast what has come of every subgroup
	dropped      int          // by the sockets of multicast, up to the end of the last Listen
	newlyDropped int          // ... since the end of the one before
	noMulticast  error        // why there are no sockets of multicast
	buf          []byte
}

// Heard is what has arrived from a rank while Listen ran last: the largest packet each way, in bytes
// with IP's and UDP's headers, 0: none; how many came each way; and how many of SmallPacket bytes by multicast.
type Heard struct{ Multicast, Unicast, Multicasts, Unicasts, Small int }

// Add counts a probe that has arrived.
func (h *Heard) Add(p *wire.Probe) {
	if p.Unicast {
		h.Unicast = max(h.Unicast, int(p.Packet))
		h.Unicasts++
		return
	}
	h.Multicast = max(h.Multicast, int(p.Packet))
	h.Multicasts++
	if p.Packet == SmallPacket {
		h.Small++
	}
}

// SmallPacket is a packet that passes where anything does.
const SmallPacket = 128

// MaxPacket is the largest packet that is sent, in bytes.
const MaxPacket = batch.MaxPacket

// OpenProber returns a prober for the group that Open will be given the same options for. It
// receives from now on.
func OpenProber(o Options) (_ *Prober, err error) { // once a join
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := &Prober{o: o, unicast: -1, heard: make([]Heard, o.Size), buf: make([]byte, MaxPacket)}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if err := p.openMulticast(); err != nil {
		return nil, err
	}
	if p.unicast, err = batch.Open(p.o.Family().Domain); err != nil {
		return nil, err
	}
	if err := p.bind(); err != nil {
		return nil, fmt.Errorf("bind UDP socket: %w", err)
	}
	// A probe is to find out what a path takes, so the kernel must not limit it by an earlier finding: the same option as
	// in openSender. Where the option is refused, only sizes that the kernel lets pass can be found.
	_ = batch.Set(p.unicast, p.o.Family().Probing)
	return p, nil
}

// openMulticast opens the sockets of all subgroups. Where the host refuses them, ranks relay: Multicast says why. An
// error is about resources that this process may have in a moment.
func (p *Prober) openMulticast() error {
	if p.o.Unicast {
		return nil
	}
	for subgroup := range p.o.Subgroups {
		err := p.open(subgroup)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return err
		}
		if err != nil {
			p.noMulticast = err
			p.closeMulticast()
			return nil
		}
	}
	return nil
}

// Taken reports whether another program has the port of the groups, or another one that Open will be given: then this
// rank neither sends nor hears probes by multicast.
func (p *Prober) Taken(port uint16) bool {
	var taken *PortTakenError
	if p.noMulticast != nil || p.o.Unicast {
		return errors.As(p.noMulticast, &taken)
	}
	if port == p.o.Port {
		return false
	}
	o := p.o
	o.Port = port
	for subgroup := range o.Subgroups {
		if err := tryReceiver(o.on(subgroup), subgroup); errors.As(err, &taken) {
			p.noMulticast = err
			p.closeMulticast()
			return true
		}
	}
	return false
}

// closeMulticast closes the sockets of all subgroups.
func (p *Prober) closeMulticast() {
	for _, fd := range append(p.receivers, p.senders...) {
		_ = unix.Close(fd)
	}
	p.receivers, p.senders, p.paths, p.bySub = nil, nil, nil, nil
}

// open opens the sockets of a subgroup.
func (p *Prober) open(subgroup int) error {
	o := p.o.on(subgroup)
	receiver, err := batch.Open(o.Family().Domain)
	if err != nil {
		return err
	}
	p.receivers = append(p.receivers, receiver)
	// Gather's sockets need a filter, too: where filters are refused, that must be known before ranks agree on multicast.
	if err := attach(receiver, []bpf.Instruction{bpf.RetConstant{Val: pass}}); err != nil {
		return err
	}
	if err := receive(receiver, o, subgroup); err != nil {
		return err
	}
	sender, err := openSender(o, subgroup)
	if err != nil {
		return err
	}
	p.senders = append(p.senders, sender)
	p.paths = append(p.paths, NewProbePath(o, netip.AddrPortFrom(o.group(subgroup), o.Port)))
	p.bySub = append(p.bySub, make([]Heard, o.Size))
	return nil
}

// bind has others reach this prober by unicast, at any address of the host and some port. Tags cover the address by
// which all ranks know this prober.
func (p *Prober) bind() error {
	anywhere := netip.IPv4Unspecified()
	if !p.o.Group.Is4() {
		anywhere = netip.IPv6Unspecified()
	}
	at, err := batch.Sockaddr(netip.AddrPortFrom(anywhere, 0))
	if err != nil {
		return err
	}
	if err := unix.Bind(p.unicast, at); err != nil {
		return err
	}
	port, err := p.Port()
	if err != nil {
		return err
	}
	var own netip.Addr // none without Sources, and then there are no tags
	if len(p.o.Sources) > 0 {
		own = p.o.Sources[p.o.Rank]
	}
	p.here = NewProbePath(&p.o, netip.AddrPortFrom(own, port))
	return nil
}

// Port returns the port to which others send unicast probes.
func (p *Prober) Port() (uint16, error) { return batch.PortOf(p.unicast) }

// Multicast sends a probe in a packet of so many bytes to all ranks, to each subgroup. An error says that
// this host did not send it.
func (p *Prober) Multicast(packet int) error {
	errs := []error{p.noMulticast}
	for subgroup, fd := range p.senders {
		errs = append(errs, ignoreLoss(unix.Send(fd, p.probe(p.paths[subgroup], packet), 0)))
	}
	return errors.Join(errs...)
}

// Offer is Multicast, and reports whether the kernel has taken the probe, of each subgroup.
func (p *Prober) Offer(packet int) bool {
	for subgroup, fd := range p.senders {
		if unix.Send(fd, p.probe(p.paths[subgroup], packet), 0) != nil {
			return false
		}
	}
	return p.noMulticast == nil
}

// OfferTo is Unicast, and reports whether the kernel has taken the probe.
func (p *Prober) OfferTo(to netip.AddrPort, packet int) bool {
	at, err := batch.Sockaddr(to)
	return err == nil && unix.Sendto(p.unicast, p.probe(&ProbePath{o: &p.o, to: to}, packet), 0, at) == nil
}

// Unicast sends a probe to the port of one rank.
func (p *Prober) Unicast(to netip.AddrPort, packet int) error {
	at, err := batch.Sockaddr(to)
	if err != nil {
		return err
	}
	return ignoreLoss(unix.Sendto(p.unicast, p.probe(&ProbePath{o: &p.o, to: to}, packet), 0, at))
}

// ignoreLoss forgives errors that a later probe may mend: a full queue, or a report about an earlier probe.
func ignoreLoss(err error) error {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return err
}

func (p *Prober) probe(path *ProbePath, packet int) []byte {
	packet = max(p.o.MinPacket(), min(packet, MaxPacket))
	b := p.buf[:packet-p.o.Family().Headers]
	clear(b)
	path.Put(b)
	return b
}

// Listen takes the probes that have arrived since it ran last, and more until enough, which sees
// each of them, says so, or for so long.
func (p *Prober) Listen(most time.Duration, enough func([]Heard) bool) {
	clear(p.heard)
	defer p.countDropped()
	fds := []unix.PollFd{{Fd: int32(p.unicast), Events: unix.POLLIN}}
	for subgroup, fd := range p.receivers {
		clear(p.bySub[subgroup])
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for end := time.Now().Add(most); ; {
		for subgroup, fd := range p.receivers {
			path := p.paths[subgroup]
			p.drain(fd, path, path.o.sentBy, p.bySub[subgroup]) // the group's sockets would refuse others
		}
		p.drain(p.unicast, p.here, func(int, unix.Sockaddr) bool { return true }, p.heard)
		p.merge()
		left := time.Until(end)
		if enough(p.heard) || left <= 0 {
			return
		}
		_, _ = unix.Poll(fds, int(left.Milliseconds())+1) // interrupted: look again
	}
}

// merge takes of each rank the probes that have come of every subgroup.
func (p *Prober) merge() {
	if len(p.bySub) == 0 {
		return
	}
	for rank := range p.heard {
		least := p.bySub[0][rank]
		for _, heard := range p.bySub[1:] {
			next := heard[rank]
			least.Multicast, least.Multicasts, least.Small = min(least.Multicast, next.Multicast),
				min(least.Multicasts, next.Multicasts), min(least.Small, next.Small)
		}
		h := &p.heard[rank]
		h.Multicast, h.Multicasts, h.Small = least.Multicast, least.Multicasts, least.Small
	}
}

// drain takes arrived probes from a socket, at most so many that strangers cannot keep it busy.
func (p *Prober) drain(fd int, path *ProbePath, sentBy func(rank int, at unix.Sockaddr) bool, heard []Heard) {
	var b [wire.ProbeSize + seal.MaxSize]byte
	for range 16 * max(len(p.heard), 64) {
		n, at, err := unix.Recvfrom(fd, b[:], unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			continue
		}
		if h, counts := path.Take(b[:], n, func(rank int) bool { return sentBy(rank, at) }); counts {
			heard[h.Rank].Add(&h)
		}
	}
}

// Dropped is how many datagrams for the group, anybody's, this host had no room for between the ends of the last two
// Listens: the network has carried them. Of several subgroups it is the most of one.
func (p *Prober) Dropped() int { return p.newlyDropped }

func (p *Prober) countDropped() {
	most := 0
	for _, fd := range p.receivers {
		most = max(most, batch.Dropped(fd))
	}
	p.newlyDropped, p.dropped = max(most-p.dropped, 0), most
}

// Heard returns the probes that arrived during the last Listen, by rank.
func (p *Prober) Heard() []Heard { return p.heard }

// Close ends the prober.
func (p *Prober) Close() {
	p.closeMulticast()
	if p.unicast >= 0 {
		_ = unix.Close(p.unicast)
	}
}
