package group

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/fault"
	"github.com/torch-mcast/torch-mcast/internal/transport/tcp"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// openUDP finds out what the paths carry, joins the multicast group and connects the control edges.
func openUDP(ctx context.Context, m *mesh.Mesh, l *lobby, p *plan) (*carrier, error) {
	o, err := whenThere(ctx, l, "the interfaces", func() (udp.Options, error) { return p.udpOptions(l.network) })
	var prober Prober
	if err == nil {
		if prober, err = whenThere(ctx, l, "probes of paths", func() (Prober, error) { return l.network.Probe(&o) }); err == nil {
			// Only once the group has been joined again: where its last member leaves, a switch forgets it.
			defer prober.Close()
		}
	}
	paths, err := probePaths(ctx, m, p, prober, packetFor(&o), err)
	if err != nil {
		return nil, err
	}
	found, err := p.adapt(&o, paths)
	if err != nil {
		return nil, err
	}
	conns, err := l.connect(ctx, p, wire.PurposeControl, topology.Neighbours(p.rank, p.size))
	if err != nil {
		return nil, err
	}
	gather, err := whenThere(ctx, l, "multicast", func() (fabric.Gather, error) { return l.network.Gather(&o, conns) })
	if err != nil {
		closeAll(conns)
		return nil, err
	}
	if p.settings.Loss > 0 {
		gather = fault.Lossy(gather, p.settings.Loss, p.settings.LossSeed+uint64(p.rank))
	}
	return &carrier{
		gather:  gather,
		streams: func(ctx context.Context) (fabric.Streams, error) { return openStreams(ctx, l, p) },
		iface:   o.Interface.Name,
		found:   found,
		free:    func() error { return nil },
	}, nil
}

// udpOptions are this rank's, but for the connections.
func (p *plan) udpOptions(n Network) (udp.Options, error) {
	var addrs []netip.Addr // of all ranks
	for _, a := range p.addrs {
		addrs = append(addrs, a.Addr())
	}
	ifi, err := n.Multicast(p.settings.Interface, addrs)
	if err != nil {
		return udp.Options{}, err
	}
	offload, err := batch.ParseOffload(p.settings.Offload)
	if err != nil {
		return udp.Options{}, err
	}
	group, port := p.group()
	return udp.Options{
		Rank: p.rank, Size: p.size, Job: p.job, Group: group, Port: port, Subgroups: p.settings.Subgroups,
		Interface: ifi, Sources: addrs, TTL: p.settings.TTL, Chunk: p.settings.Chunk, RcvBuf: p.rcvBuf,
		Window: 2 * p.settings.Window, Offload: offload, Stall: p.settings.Timeout,
	}, nil
}

// packetFor returns the bytes of the packets in which full chunks travel, and TCP's: as many as the
// interface takes, or those of the chunks that somebody has asked for.
func packetFor(o *udp.Options) int {
	switch {
	case o.Interface == nil:
		return 0 // this rank has failed
	case o.Chunk > 0:
		return udp.PacketFor(o.Chunk)
	}
	return min(o.Interface.MTU, udp.MaxPacket)
}

// adapt fits the sizes of chunks and TCP segments to what the paths carry, and returns what is to be said of it.
func (p *plan) adapt(o *udp.Options, paths *probed) (found []warning, err error) {
	mtu := o.Interface.MTU
	if paths.packet < paths.full {
		p.narrow = paths.packet
		text := paths.narrow(o.Interface.Name, mtu)
		chunk := udp.ChunkFor(paths.packet)
		switch {
		case paths.packet < leastPacket:
			return nil, &Fault{Kind: Path, Rank: paths.to, Text: text}
		case o.Chunk > 0:
			return nil, &Fault{Kind: Path, Rank: paths.to, Text: fmt.Sprintf(
				"MCAST_CHUNK=%d is too large: %s; or set MCAST_CHUNK to %d at most", o.Chunk, text, chunk)}
		}
		found = append(found, warning{"narrow path", fmt.Sprintf("%s; until then chunks have %d bytes", text, chunk)})
	}
	if o.Chunk == 0 {
		o.Chunk = udp.ChunkFor(paths.packet)
	}
	if paths.packet < min(mtu, udp.MaxPacket) {
		p.segment = min(paths.packet-ipAndTCP, mostSegment)
	}
	return append(found, paths.warnings()...), nil
}

// openStreams connects this rank to all others for Reduce-Scatter. It waits for those that have not
// come to theirs as long as ctx, the life of the group, lasts: the mesh says who is dead.
func openStreams(ctx context.Context, l *lobby, p *plan) (fabric.Streams, error) {
	conns, err := l.connect(ctx, p, wire.PurposeStream, p.others())
	if err != nil {
		return nil, err
	}
	o := &tcp.Options{Rank: p.rank, Size: p.size, Stall: p.settings.Timeout}
	s, err := whenThere(ctx, l, "reductions", func() (fabric.Streams, error) { return l.network.Streams(o, conns) })
	if err != nil {
		closeAll(conns)
	}
	return s, err
}
