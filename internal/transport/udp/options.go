// Package udp is the fabric for hosts on one Ethernet: datagrams of
// Allgather and Broadcast travel by multicast, over IPv4 or IPv6, control messages by TCP
// connections between the ranks that talk (Khalilov et al., SC24, III-B: the fast path is
// unreliable multicast, the slow path is reliable and between two ranks).
//
// Datagrams cross the kernel in batches (internal/transport/batch), and their payload is received
// straight to where the protocol expects it. A receiver's socket buffer is the only queue between two ranks; Traits
// says how many chunks it surely holds.
package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// Options describe one rank's end of the fabric. Job, Group, Port, Subgroups,
// Size and Chunk must be the same on all ranks.
type Options struct {
	Rank      int
	Size      int
	Left      int // the ranks before and behind this one in the ring: a rank may read memory of the one before
	Right     int
	Job       uint64
	Group     netip.Addr     // multicast address of subgroup 0; subgroup g has the address g above it
	Port      uint16         // of all subgroups
	Subgroups int            // 1 to 256; 0 means 1
	Interface *net.Interface // from Choose
	// Sources are the addresses of all ranks, by rank, of the group's IP version: each multicasts from its own, and
	// datagrams from others are refused. None: from any address, and nothing is refused.
	Sources []netip.Addr
	// Rails are further interfaces: with n rails subgroup g goes by number g mod (n+1), counting Interface as number 0.
	// There are at least n+1 subgroups.
	Rails  []Rail
	Conns  map[int]net.Conn // to every rank that Control may name, of TCP; see Open
	TTL    int              // routers a datagram may pass, plus one; 0 keeps it on the host, negative means 1
	Chunk  int              // payload bytes of a datagram; 0: ChunkFor(Interface)
	RcvBuf int              // bytes asked for each multicast socket; 0: as much as the kernel allows
	Window int              // upper bound, in bytes, of Traits.Window; 0: defaultWindow
	// Unicast turns multicast off: no group is joined, and chunks to be multicast are lost at once.
	Unicast bool
	Managed bool // of RDMA devices: the group is joined by librdmacm on Ethernet, too
	Offload batch.Offload
	// Seals seal every datagram and open those of others, by the ranks' numbers; nil: datagrams go as they are. A caller
	// that opens the fabric again with the same key gives the same Sealer.
	Seals *seal.Sealer
	// Probes likewise seal what a Prober sends, before anything else: of all ranks, by their numbers among those.
	Probes *seal.Sealer
	DSCP   int // of sent packets, see sys.Mark
	// Stall is how long bytes sent on a control connection may go unacknowledged before the connection counts as lost,
	// with a *sys.StallError; 0: for ever.
	Stall time.Duration
}

// Rail is an interface that carries some of the subgroups, and the addresses of all ranks on it, as
// Interface and Sources are.
type Rail struct {
	Interface *net.Interface
	Sources   []netip.Addr
}

// on returns the options of a subgroup: those of its interface.
func (o *Options) on(subgroup int) *Options {
	number := o.railOf(subgroup)
	if number == 0 {
		return o
	}
	of := *o
	of.Interface, of.Sources = o.Rails[number-1].Interface, o.Rails[number-1].Sources
	return &of
}

// railOf returns the number of a subgroup's interface.
func (o *Options) railOf(subgroup int) int { return subgroup % (len(o.Rails) + 1) }

// An outbox leaves as much behind a payload as a Sealer writes there: it does not compile else.
const _ = uint(batch.Spare - seal.Spare)

// Limits of a group and a datagram.
const (
	udpHeader = 8
	maxRanks  = 1 << 16

	// MinChunk is the least payload of a full datagram, in bytes.
	MinChunk = 64
)

// ChunkFor returns the largest payload of a datagram that travels in a packet of so many bytes, an interface's MTU for
// instance, and keeps chunks on 32-byte boundaries (a SIMD register): 1440 bytes of 1500, or 1408 over IPv6. Ranks with
// different interfaces must agree on the smallest.
func ChunkFor(f *batch.Family, packet int) int {
	return (min(packet, batch.MaxPacket) - PacketFor(f, 0)) / 32 * 32
}

// PacketFor returns the bytes of the packet that a chunk travels in, the inverse of ChunkFor.
func PacketFor(f *batch.Family, chunk int) int { return chunk + wire.DataSize + f.Headers }

// Head returns how many bytes precede the payload of a datagram: its header, and what seals it.
func (o *Options) Head() int { return wire.DataSize + o.Seals.Size() }

// ChunkFor is the function of that name for datagrams of these options.
func (o *Options) ChunkFor(packet int) int {
	return ChunkFor(o.Family(), min(packet, batch.MaxPacket)-(o.Head()-wire.DataSize))
}

// PacketFor is the function of that name for datagrams of these options.
func (o *Options) PacketFor(chunk int) int { return chunk + o.Head() + o.Family().Headers }

// Family is the IP version of the group.
func (o *Options) Family() *batch.Family { return batch.FamilyOf(o.Group) }

// complete checks the options and fills in defaults.
func (o *Options) complete() error {
	switch {
	case o.Size < 1 || o.Size > maxRanks:
		return fmt.Errorf("udp: group of %d ranks: want 1 to %d", o.Size, maxRanks)
	case o.Rank < 0 || o.Rank >= o.Size:
		return fmt.Errorf("udp: rank %d of %d: want 0 to %d", o.Rank, o.Size, o.Size-1)
	case o.Port == 0:
		return errors.New("udp: no port given")
	case o.TTL > 255:
		return fmt.Errorf("udp: TTL %d: want 0 to 255", o.TTL)
	case o.Probes != nil && len(o.Sources) == 0:
		return fmt.Errorf("udp: probes are sealed, and there are no addresses of ranks: want the addresses of all %d, "+
			"which tags cover", o.Size)
	}
	if o.TTL < 0 {
		o.TTL = 1
	}
	if o.Subgroups == 0 {
		o.Subgroups = 1
	}
	if o.Subgroups < 1 || o.Subgroups > 256 {
		return fmt.Errorf("udp: %d subgroups: want 1 to 256", o.Subgroups)
	}
	if o.Subgroups <= len(o.Rails) {
		return fmt.Errorf("udp: %d subgroups for %d interfaces: want one for each at least", o.Subgroups, len(o.Rails)+1)
	}
	last := o.Group
	for range o.Subgroups - 1 {
		last = last.Next()
	}
	if !o.Group.IsMulticast() || !last.IsMulticast() || o.Group.Is4In6() {
		return fmt.Errorf("udp: groups %v to %v: want multicast addresses, 224.0.0.0 to 239.255.255.255 or of ff00::/8",
			o.Group, last)
	}
	for number := range len(o.Rails) + 1 {
		if err := o.on(number).checkRail(); err != nil {
			return err
		}
	}
	for rank, conn := range o.Conns {
		if rank < 0 || rank >= o.Size || rank == o.Rank || conn == nil {
			return fmt.Errorf("udp: control connection of rank %d to rank %d of %d: want another rank's", o.Rank, rank, o.Size)
		}
	}
	return o.completeSizes()
}

// checkRail checks an interface and the addresses on it.
func (o *Options) checkRail() error {
	if o.Interface == nil {
		return errors.New("udp: no interface given")
	}
	if len(o.Sources) != 0 && len(o.Sources) != o.Size {
		return fmt.Errorf("udp: addresses of %d ranks: want all %d, or none", len(o.Sources), o.Size)
	}
	for rank, source := range o.Sources {
		if source.Is4() != o.Group.Is4() || source.IsMulticast() {
			return fmt.Errorf("udp: address %v of rank %d: want a host's %s address, as the group has", source, rank,
				o.Family().Name)
		}
	}
	return nil
}

// Narrowest returns the interface with the smallest MTU.
func (o *Options) Narrowest() *net.Interface {
	narrowest := o.Interface
	for _, r := range o.Rails {
		if r.Interface.MTU < narrowest.MTU {
			narrowest = r.Interface
		}
	}
	return narrowest
}

func (o *Options) completeSizes() error {
	mtu := o.Narrowest().MTU
	largest := o.ChunkFor(mtu)
	if largest < MinChunk {
		return fmt.Errorf("udp: MTU %d of %s leaves no room for a chunk: want at least %d", mtu, o.Interface.Name,
			o.PacketFor(MinChunk))
	}
	if o.Chunk == 0 {
		o.Chunk = largest
	}
	if most := min(mtu, batch.MaxPacket) - o.PacketFor(0); o.Chunk < MinChunk || o.Chunk > most {
		return fmt.Errorf("udp: chunk of %d bytes on %s: want %d to %d (MTU %d less headers)",
			o.Chunk, o.Interface.Name, MinChunk, most, mtu)
	}
	if o.RcvBuf < 0 || o.Window < 0 {
		return fmt.Errorf("udp: receive buffer %d, window %d: want sizes in bytes, or 0", o.RcvBuf, o.Window)
	}
	if o.Window == 0 {
		o.Window = defaultWindow
	}
	if err := o.Offload.Check(); err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	return nil
}
