package collnet

import (
	"context"
	"net/netip"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/fabric"
	"github.com/torch-mcast/torch-mcast/internal/fabric/datagram"
	"github.com/torch-mcast/torch-mcast/internal/fabric/fault"
	"github.com/torch-mcast/torch-mcast/internal/fabric/tcp"
	"github.com/torch-mcast/torch-mcast/internal/fabric/udp"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// openUDP joins the multicast group and connects the control edges.
func openUDP(ctx context.Context, _ *mesh.Mesh, l *lobby, p *plan) (*carrier, error) {
	var peers []netip.Addr
	for _, a := range p.addrs {
		peers = append(peers, a.Addr())
	}
	ifi, _, err := udp.Choose(p.settings.Interface, peers)
	if err != nil {
		return nil, err
	}
	offload, err := datagram.ParseOffload(p.settings.Offload)
	if err != nil {
		return nil, err
	}
	chunk := p.settings.Chunk
	if chunk == 0 {
		smallest := *ifi
		if !p.oneHost {
			smallest.MTU = p.mtu
		}
		chunk = udp.ChunkFor(&smallest)
	}
	conns, err := l.connect(ctx, p, wire.PurposeControl, core.Neighbours(p.rank, p.size))
	if err != nil {
		return nil, err
	}
	group, port := p.group()
	u, err := udp.Open(udp.Options{
		Rank: p.rank, Size: p.size, Job: p.job, Group: group, Port: port, Subgroups: p.settings.Subgroups,
		Interface: ifi, Conns: conns, TTL: p.settings.TTL, Chunk: chunk, RcvBuf: p.rcvBuf,
		Window: 2 * p.settings.Window, Offload: offload, Stall: p.settings.Timeout,
	})
	if err != nil {
		return nil, err
	}
	var gather fabric.Gather = u
	if p.settings.Loss > 0 {
		gather = fault.Lossy(u, p.settings.Loss, p.settings.LossSeed+uint64(p.rank)) //nolint:gosec // a rank
	}
	return &carrier{
		gather:  gather,
		streams: func(ctx context.Context) (fabric.Streams, error) { return openStreams(ctx, l, p) },
		iface:   ifi.Name,
		free:    func() error { return nil },
	}, nil
}

// openStreams connects this rank to all others for Reduce-Scatter. It waits for those that have not
// come to theirs as long as ctx, the life of the group, lasts: the mesh says who is dead.
func openStreams(ctx context.Context, l *lobby, p *plan) (fabric.Streams, error) {
	conns, err := l.connect(ctx, p, wire.PurposeStream, p.others())
	if err != nil {
		return nil, err
	}
	return tcp.Open(tcp.Options{Rank: p.rank, Size: p.size, Conns: conns, Stall: p.settings.Timeout})
}
