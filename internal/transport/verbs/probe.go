package verbs

import (
	"net/netip"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// Prober is udp.Prober, but that its multicast travels as chunks will.
type Prober struct {
	*udp.Prober
	o     udp.Options
	port  *port
	path  *udp.ProbePath
	heard []udp.Heard
}

// probeDepth holds the trains of small probes of all ranks, and some of each size. With the rings that Open maps, while
// a group is formed, it is less than the 8 MiB that an ordinary user may lock.
const probeDepth = 256

// probing returns what the rings of a Prober take, with datagrams of so many bytes.
func probing(bytes int) int { return probeDepth*(ibverbs.GRH+bytes) + sendDepth*bytes }

// look is how often a prober that waits looks at the device.
const look = time.Millisecond

// OpenProber returns a prober for the group that Open will be given the same options for, fitted by Fit. It receives
// from now on.
func OpenProber(o udp.Options) (*Prober, error) {
	under, err := udp.OpenProber(o)
	if err != nil {
		return nil, err
	}
	port, err := openPort(&o, o.Interface.MTU-batch.IPv4.Headers, probeDepth)
	if err != nil {
		under.Close()
		return nil, err
	}
	p := &Prober{Prober: under, o: o, port: port, heard: make([]udp.Heard, o.Size)}
	p.path = udp.NewProbePath(&p.o, netip.AddrPortFrom(o.Group, 0)) // devices have no ports, so it is not UDP's
	return p, nil
}

// Taken hides the method of udp.Prober: devices have no ports.
func (*Prober) Taken(uint16) bool { return false }

// Multicast sends a probe to all ranks, in a datagram as large as in a packet of UDP of so many bytes.
func (p *Prober) Multicast(packet int) error {
	packet = max(p.o.MinPacket(), min(packet, p.o.Interface.MTU))
	n, err := p.port.room()
	if err != nil || n == 0 {
		return err // without room it is as if it were lost
	}
	b := p.port.slot(0)[:packet-batch.IPv4.Headers]
	clear(b)
	p.path.Put(b)
	p.port.sizes[0] = uint32(len(b))
	return p.port.send(1, ibverbs.Payload{})
}

// Listen is udp.Prober's.
func (p *Prober) Listen(most time.Duration, enough func([]udp.Heard) bool) {
	clear(p.heard)
	for end := time.Now().Add(most); ; {
		p.drain()
		done := false
		p.Prober.Listen(min(look, max(0, time.Until(end))), func(heard []udp.Heard) bool {
			for rank := range heard {
				p.heard[rank].Unicast = max(p.heard[rank].Unicast, heard[rank].Unicast)
			}
			done = enough(p.heard)
			return done
		})
		if done || time.Now().After(end) {
			return
		}
	}
}

// drain takes the probes that have arrived at the device.
func (p *Prober) drain() {
	for range probeDepth {
		if came, err := p.port.look(); err != nil || !came {
			break
		}
		b, from, err := p.port.take()
		if err != nil {
			continue
		}
		if h, counts := p.path.Take(b, len(b), func(rank int) bool { return !foreign(from, p.o.Sources[rank]) }); counts {
			p.heard[h.Rank].Add(&h)
		}
	}
	_ = p.port.post() // without these buffers datagrams are lost, as a probe is to find out
}

// Heard returns the probes that arrived during the last Listen, by rank.
func (p *Prober) Heard() []udp.Heard { return p.heard }

// Close ends the prober.
func (p *Prober) Close() {
	p.Prober.Close()
	_ = p.port.close()
}
