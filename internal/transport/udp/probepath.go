package udp

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// ProbePath is where probes are sent: to a multicast group, or to one rank. With Options.Probes each carries a tag.
// Such a probe counts once, if the rank that it names has sent it here with the size that it has. So nobody without the
// key can make one, or use a recorded one a second time or on another path.
type ProbePath struct {
	o     *Options
	to    netip.AddrPort
	taken [][]uint64 // by rank: the counters of its probes that have counted
}

// NewProbePath returns the path to an address, and to a port where there are any.
func NewProbePath(o *Options, to netip.AddrPort) *ProbePath {
	return &ProbePath{o: o, to: to, taken: make([][]uint64, o.Size)}
}

// MinPacket returns the bytes of the smallest packet that holds a probe.
func MinPacket(f *batch.Family) int { return f.Headers + wire.ProbeSize }

// MinPacket is the function of that name for probes of these options.
func (o *Options) MinPacket() int { return MinPacket(o.Family()) + o.Probes.Size() }

// Put makes a datagram a probe of its size. It holds MinPacket at least, less IP's and UDP's headers, and zeros.
func (p *ProbePath) Put(b []byte) {
	h := wire.Probe{
		Unicast: !p.to.Addr().IsMulticast(), Job: p.o.Job, Rank: uint16(p.o.Rank),
		Packet: uint32(len(b) + p.o.Family().Headers),
	}
	h.Put(b)
	if p.o.Probes == nil {
		return
	}
	covered := p.covered(b)
	head := covered[:len(covered)+p.o.Probes.Size()]
	p.o.Probes.Seal(0, head, nil, nil)
	copy(b[wire.ProbeSize:], head[len(covered):])
}

// Take reads a probe that has come this way in a datagram of so many bytes, and reports whether it counts. b holds the
// datagram's first bytes. from says whether it came from where a rank sends.
func (p *ProbePath) Take(b []byte, bytes int, from func(rank int) bool) (h wire.Probe, counts bool) {
	headers := p.o.Family().Headers
	if bytes < p.o.MinPacket()-headers || h.Get(b) != nil || h.Unicast == p.to.Addr().IsMulticast() || h.Job != p.o.Job ||
		int(h.Rank) >= p.o.Size || int(h.Packet) != bytes+headers || !from(int(h.Rank)) {
		return h, false
	}
	return h, p.o.Probes == nil || p.proven(b, int(h.Rank))
}

// proven reports whether a rank has sealed a probe for this path that has not counted yet. Probes that have counted are
// remembered, one by one: they are a few hundred of a rank at most, and the network brings them in any order.
func (p *ProbePath) proven(b []byte, rank int) bool {
	head := append(p.covered(b), b[wire.ProbeSize:][:p.o.Probes.Size()]...)
	if !p.o.Probes.Open(uint32(rank), 0, head, nil) {
		return false
	}
	counter := p.o.Probes.Counter(head)
	if slices.Contains(p.taken[rank], counter) {
		return false
	}
	p.taken[rank] = append(p.taken[rank], counter)
	return true
}

// covered returns the bytes that the tag of a probe covers, with room for the seal: the header, which has the size, and
// the address.
func (p *ProbePath) covered(b []byte) []byte {
	to := p.to.Addr().As16()
	covered := append(make([]byte, 0, seal.MaxHeader+seal.MaxSize), b[:wire.ProbeSize]...)
	covered = append(covered, to[:]...)
	return binary.BigEndian.AppendUint16(covered, p.to.Port())
}
