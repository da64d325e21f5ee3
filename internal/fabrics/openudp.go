package fabrics

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/composite"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/fault"
	"github.com/torch-mcast/torch-mcast/internal/transport/tcp"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// openUDP has chunks travel as UDP datagrams, or through RDMA devices where auto may take those and they reach all
// ranks.
func (p *Opener) openUDP(ctx context.Context) (*Opened, error) {
	if n, has := p.Listener.Network.(hostnet.RDMA); has && p.Plan.Devices {
		if c, err := p.openIfAllHave(ctx, n.Verbs()); c != nil || err != nil {
			return c, err
		}
	}
	return p.openDatagrams(ctx, p.Listener.Network)
}

// openDatagrams finds out what the paths carry, joins the multicast group and connects the control edges.
func (p *Opener) openDatagrams(ctx context.Context, by hostnet.Datagrams) (*Opened, error) {
	for {
		o, prober, err := p.prepare(ctx, by)
		paths, err := probePaths(ctx, p.Mesh, p.Plan, prober, packetFor(&o), err)
		if errors.Is(err, errRedraw) {
			prober.Close()
			p.Plan = p.Plan.OnNextPort()
			continue
		}
		if prober != nil {
			// Only once the group has been joined again: where its last member leaves, a switch forgets it.
			defer prober.Close()
		}
		if err != nil {
			return nil, err
		}
		return p.openProbed(ctx, by, &o, paths)
	}
}

// errRedraw says on all ranks alike that another program has the port that was drawn for the multicast group.
var errRedraw = errors.New("another program has the port of the multicast group")

// prepare returns this rank's options and what probes by them, without an error.
func (p *Opener) prepare(ctx context.Context, by hostnet.Datagrams) (udp.Options, hostnet.Prober, error) {
	o, err := hostnet.WhenThere(ctx, p.Listener.Log, "the interfaces", func() (udp.Options, error) {
		o, err := udpOptions(p.Plan, p.Listener.Network)
		if err == nil {
			err = p.seals.fill(p.Plan, &o, p.Listener.Identity)
		}
		if fits, ok := by.(hostnet.Fitter); ok && err == nil {
			err = fits.Fit(&o)
		}
		return o, err
	})
	if err != nil {
		return o, nil, err
	}
	prober, err := hostnet.WhenThere(ctx, p.Listener.Log, "probes of paths",
		func() (hostnet.Prober, error) { return by.Probe(&o) })
	if err != nil {
		return o, nil, err
	}
	return o, prober, nil
}

// openProbed opens the fabric over paths that were probed.
func (p *Opener) openProbed(ctx context.Context, by hostnet.Datagrams, o *udp.Options, paths *probed) (*Opened, error) {
	paths.snooping = snooping(o)
	if _, real := p.Listener.Network.(hostnet.Binder); real && len(paths.unheardPairs) > 0 {
		paths.seen = whyUnheard(o, paths.unheardPairs)
	}
	found, err := p.fitToPaths(o, paths)
	if err != nil {
		return nil, err
	}
	travels, err := travelOver(p.Plan, paths)
	if err != nil {
		return nil, err
	}
	conns, err := p.Listener.Connect(ctx, p.Plan, wire.PurposeControl, p.Plan.Neighbours())
	if err != nil {
		return nil, err
	}
	peers := peersOf(p.Plan, paths, p.Listener.Network, conns)
	remote := p.Plan.Remote()
	apart := *o // for messages
	apart.Sources = team.Pick(&remote, o.Sources)
	narrowToColumn(p.Plan, o)
	ring := topology.Graph{Rank: o.Rank, Size: o.Size, Order: topology.NewOrder(p.Plan.Ring)}
	o.Left, o.Right = ring.Left(), ring.Right()
	open := func() (fabric.Gather, error) {
		g, err := by.Gather(o, team.ByPlace(&p.Plan.Column, conns))
		return g, InRanks(&p.Plan.Column, err)
	}
	gather, err := hostnet.WhenThere(ctx, p.Listener.Log, "multicast", open)
	if err != nil && travels.By == Unicast && !o.Unicast {
		o.Unicast = true // nobody multicasts: why this rank cannot has been told to all
		gather, err = hostnet.WhenThere(ctx, p.Listener.Log, "sockets", open)
	}
	if err != nil {
		bootstrap.CloseAll(conns)
		return nil, err
	}
	registers, _ := gather.(fabric.Registers)
	if p.Plan.Settings.Loss > 0 {
		gather = fault.Lossy(gather, p.Plan.Settings.Loss, p.Plan.Settings.LossSeed+uint64(p.Plan.Rank))
	}
	streamsOn := func(o *udp.Options) streamOpener {
		// else connections are sealed, and memory is not written from afar
		if on, ok := by.(hostnet.Streamer); ok && !o.Seals.Keyed() {
			return func(s *tcp.Options, conns map[int]net.Conn) (fabric.Watched, error) { return on.StreamsOn(o, s, conns) }
		}
		return p.Listener.Network.Streams
	}
	link, alone := openLink(p.Listener.Network, o.Interface)
	return &Opened{
		Gather:    gather,
		Registers: registers,
		Travels:   travels,
		Peers:     peers,
		Unheard:   paths.unheardPairs,
		Streams: func(ctx context.Context) (fabric.Streams, error) {
			return p.openStreams(ctx, streamsOn(o), wire.PurposeStream, &p.Plan.Column, "reductions")
		},
		Messages: func(ctx context.Context) (fabric.Streams, error) {
			s, err := p.openStreams(ctx, streamsOn(&apart), wire.PurposeMessage, &remote, "messages")
			if err != nil || p.Plan.Node.Size() < 2 {
				return s, err
			}
			return composite.New(p.region.Messages(), p.Plan.Node.Ranks, s, remote.Ranks), nil
		},
		Interface: o.Interface.Name,
		Rails:     p.Plan.Settings.Interfaces()[min(1, len(p.Plan.Settings.Interfaces())):],
		Link:      link,
		Warnings:  append(found, alone...),
		Free:      link.close,
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
		Window: 2 * a.Settings.Window, Offload: offload, Stall: mesh.StallFor(a.Settings.Timeout),
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
func (p *Opener) fitToPaths(o *udp.Options, paths *probed) (found []Warning, err error) {
	mtu := o.Narrowest().MTU
	narrow, segment := 0, 0
	if paths.packet < paths.full {
		narrow = paths.packet
		text := paths.narrow(o.Narrowest().Name, mtu)
		chunk := o.ChunkFor(paths.packet)
		switch {
		case paths.packet < leastPacket:
			return nil, paths.fault(text)
		case o.Chunk > 0:
			return nil, paths.fault(fmt.Sprintf("MCAST_CHUNK=%d is too large: %s; or set MCAST_CHUNK to %d at most", o.Chunk,
				text, chunk))
		}
		found = append(found, Warning{"narrow path", fmt.Sprintf("%s; until then chunks have %d bytes", text, chunk)})
	}
	if o.Chunk == 0 {
		o.Chunk = o.ChunkFor(paths.packet)
	}
	if paths.packet < min(mtu, udp.MaxPacket) {
		segment = min(paths.packet-tcpHeaders(p.Plan), mostSegment)
	}
	p.Plan = p.Plan.OnPaths(narrow, segment)
	if p.Plan.Settings.Multicast != "off" {
		found = append(found, paths.warnings()...)
	}
	return found, nil
}

// streamOpener opens streams over connections.
type streamOpener func(*tcp.Options, map[int]net.Conn) (fabric.Watched, error)

// openStreams connects this rank to others for a purpose, and opens streams over the connections. It waits for ranks
// that have not connected yet until ctx, the life of the group, ends: the mesh finds the dead ones.
func (p *Opener) openStreams(
	ctx context.Context, open streamOpener, purpose wire.Purpose, m *team.Members, what string,
) (fabric.Watched, error) {
	conns, err := p.Listener.Connect(ctx, p.Plan, purpose, m.Others())
	if err != nil {
		return nil, err
	}
	o := &tcp.Options{
		Rank: m.Own, Size: m.Size(), Stall: mesh.StallFor(p.Plan.Settings.Timeout),
		DSCP: p.Plan.Settings.Mark(),
	}
	s, err := hostnet.WhenThere(ctx, p.Listener.Log, what, func() (fabric.Watched, error) {
		s, err := open(o, team.ByPlace(m, conns))
		return s, InRanks(m, err)
	})
	if err != nil {
		bootstrap.CloseAll(conns)
	}
	return s, err
}
