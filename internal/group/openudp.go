package group

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/fault"
	"github.com/torch-mcast/torch-mcast/internal/transport/tcp"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// openUDP has chunks travel as UDP datagrams, or through RDMA devices where auto may take those and they reach all ranks.
func openUDP(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan) (*transports, error) {
	if n, has := l.network.(hostnet.RDMA); has && a.Devices {
		if c, err := openIfAllHave(ctx, m, l, a, n.Verbs()); c != nil || err != nil {
			return c, err
		}
	}
	return openDatagrams(ctx, m, l, a, l.network)
}

// openDatagrams finds out what the paths carry, joins the multicast group and connects the control edges.
func openDatagrams(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan, by hostnet.Datagrams) (*transports, error) {
	for {
		o, prober, err := prepare(ctx, l, a, by)
		paths, err := probePaths(ctx, m, a, prober, packetFor(&o), err)
		if errors.Is(err, errRedraw) {
			prober.Close()
			a.Redraw()
			continue
		}
		if prober != nil {
			// Only once the group has been joined again: where its last member leaves, a switch forgets it.
			defer prober.Close()
		}
		if err != nil {
			return nil, err
		}
		return openProbed(ctx, l, a, by, &o, paths)
	}
}

// errRedraw says on all ranks alike that another program has the port that was drawn for the multicast group.
var errRedraw = errors.New("another program has the port of the multicast group")

// prepare returns this rank's options and what probes by them, without an error.
func prepare(ctx context.Context, l *lobby, a *team.Plan, by hostnet.Datagrams) (udp.Options, hostnet.Prober, error) {
	o, err := whenThere(ctx, l, "the interfaces", func() (udp.Options, error) {
		o, err := udpOptions(a, l.network)
		if err == nil {
			err = l.seals.fill(a, &o, l.identity)
		}
		if fits, ok := by.(hostnet.Fitter); ok && err == nil {
			err = fits.Fit(&o)
		}
		return o, err
	})
	if err != nil {
		return o, nil, err
	}
	prober, err := whenThere(ctx, l, "probes of paths", func() (hostnet.Prober, error) { return by.Probe(&o) })
	if err != nil {
		return o, nil, err
	}
	return o, prober, nil
}

// openProbed opens the fabric over paths that were probed.
func openProbed(ctx context.Context, l *lobby, a *team.Plan, by hostnet.Datagrams, o *udp.Options, paths *probed) (*transports, error) {
	paths.snooping = snooping(o)
	if _, real := l.network.(hostnet.Binder); real && len(paths.deaf) > 0 {
		paths.seen = whyDeaf(o, paths.deaf)
	}
	found, err := fitToPaths(a, o, paths)
	if err != nil {
		return nil, err
	}
	travels, err := gatheringOver(a, paths)
	if err != nil {
		return nil, err
	}
	conns, err := l.connect(ctx, a, wire.PurposeControl, a.Neighbours())
	if err != nil {
		return nil, err
	}
	peers := peersOf(a, paths, l.network, conns)
	narrowToColumn(a, o)
	ring := topology.Graph{Rank: o.Rank, Size: o.Size, Order: topology.NewOrder(a.Ring)}
	o.Left, o.Right = ring.Left(), ring.Right()
	open := func() (fabric.Gather, error) {
		g, err := by.Gather(o, team.ByPlace(&a.Column, conns))
		return g, inRanks(&a.Column, err)
	}
	gather, err := whenThere(ctx, l, "multicast", open)
	if err != nil && travels.by == byUnicast && !o.Unicast {
		o.Unicast = true // nobody multicasts: why this rank cannot has been told to all
		gather, err = whenThere(ctx, l, "sockets", open)
	}
	if err != nil {
		closeAll(conns)
		return nil, err
	}
	registers, _ := gather.(fabric.Registers)
	if a.Settings.Loss > 0 {
		gather = fault.Lossy(gather, a.Settings.Loss, a.Settings.LossSeed+uint64(a.Rank))
	}
	openStreamsOn := l.network.Streams
	if on, ok := by.(hostnet.Streamer); ok && !o.Seals.Keyed() { // else connections are sealed, and memory is not written from afar
		openStreamsOn = func(s *tcp.Options, conns map[int]net.Conn) (fabric.Streams, error) {
			return on.StreamsOn(o, s, conns)
		}
	}
	link, alone := openLink(l.network, o.Interface)
	return &transports{
		gather:    gather,
		registers: registers,
		by:        travels,
		peers:     peers,
		unheard:   paths.deaf,
		streams:   func(ctx context.Context) (fabric.Streams, error) { return openStreams(ctx, l, a, openStreamsOn) },
		iface:     o.Interface.Name,
		rails:     a.Settings.Interfaces()[min(1, len(a.Settings.Interfaces())):],
		link:      link,
		found:     append(found, alone...),
		free:      link.close,
	}, nil
}

// udpOptions are this rank's, but for the connections.
func udpOptions(a *team.Plan, n hostnet.Network) (udp.Options, error) {
	addrs := a.Addresses()
	ifi, err := n.Multicast(a.Settings.First(), addrs)
	if err != nil {
		return udp.Options{}, err
	}
	offload, err := batch.ParseOffload(a.Settings.Offload)
	if err != nil {
		return udp.Options{}, err
	}
	group, port := a.MulticastGroup()
	o := udp.Options{
		Rank: a.Rank, Size: a.Size, Job: a.Job, Group: group, Port: port,
		Interface: ifi, Sources: addrs, TTL: a.Settings.TTL, Chunk: a.Settings.Chunk, RcvBuf: a.RcvBuf,
		Window: 2 * a.Settings.Window, Offload: offload, Stall: stallFor(a.Settings.Timeout),
		DSCP: a.Settings.Mark(), Unicast: a.Settings.Multicast == "off",
	}
	err = addRails(a, n, &o)
	return o, err
}

// narrowToColumn cuts the options for all ranks, with which the paths were probed, down to this
// rank's column.
func narrowToColumn(a *team.Plan, o *udp.Options) {
	if !a.TwoLevel() {
		return
	}
	o.Rank, o.Size, o.Job, o.Port = a.Column.Own, a.Column.Size(), a.ColumnJob(), a.ColumnPort(o.Port)
	o.Sources = team.Pick(&a.Column, o.Sources)
	for i := range o.Rails {
		o.Rails[i].Sources = team.Pick(&a.Column, o.Rails[i].Sources)
	}
}

// packetFor returns the bytes of the packets in which full chunks travel, and TCP's: as many as the
// interface takes, or those of the chunks that somebody has asked for.
func packetFor(o *udp.Options) int {
	switch {
	case o.Interface == nil:
		return 0 // this rank has failed
	case o.Chunk > 0:
		return o.PacketFor(o.Chunk)
	}
	return min(o.Narrowest().MTU, udp.MaxPacket)
}

// fitToPaths fits the sizes of chunks and TCP segments to the paths, and returns warnings about that.
func fitToPaths(a *team.Plan, o *udp.Options, paths *probed) (found []warning, err error) {
	mtu := o.Narrowest().MTU
	if paths.packet < paths.full {
		a.NarrowTo(paths.packet)
		text := paths.narrow(o.Narrowest().Name, mtu)
		chunk := o.ChunkFor(paths.packet)
		switch {
		case paths.packet < leastPacket:
			return nil, paths.fault(text)
		case o.Chunk > 0:
			return nil, paths.fault(fmt.Sprintf("MCAST_CHUNK=%d is too large: %s; or set MCAST_CHUNK to %d at most", o.Chunk, text, chunk))
		}
		found = append(found, warning{"narrow path", fmt.Sprintf("%s; until then chunks have %d bytes", text, chunk)})
	}
	if o.Chunk == 0 {
		o.Chunk = o.ChunkFor(paths.packet)
	}
	if paths.packet < min(mtu, udp.MaxPacket) {
		a.BoundSegments(min(paths.packet-tcpHeaders(a), mostSegment))
	}
	if a.Settings.Multicast != "off" {
		found = append(found, paths.warnings()...)
	}
	return found, nil
}

// openStreams connects this rank to the others of its column for Reduce-Scatter, and opens streams over the
// connections. It waits for ranks that have not connected yet until ctx, the life of the group, ends: the mesh finds
// the dead ones.
func openStreams(
	ctx context.Context, l *lobby, a *team.Plan, open func(*tcp.Options, map[int]net.Conn) (fabric.Streams, error),
) (fabric.Streams, error) {
	conns, err := l.connect(ctx, a, wire.PurposeStream, a.Others())
	if err != nil {
		return nil, err
	}
	o := &tcp.Options{Rank: a.Column.Own, Size: a.Column.Size(), Stall: stallFor(a.Settings.Timeout), DSCP: a.Settings.Mark()}
	s, err := whenThere(ctx, l, "reductions", func() (fabric.Streams, error) {
		s, err := open(o, team.ByPlace(&a.Column, conns))
		return s, inRanks(&a.Column, err)
	})
	if err != nil {
		closeAll(conns)
	}
	return s, err
}
