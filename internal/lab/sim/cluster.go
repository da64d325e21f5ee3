package sim

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

const (
	// PacketBytes is what a packet carries of a chunk: InfiniBand's largest
	// MTU, which Khalilov et al. (SC24) measures with.
	PacketBytes = 4096
	// digestAbove is the sum of all receive buffers above which a Cluster
	// keeps checksums instead of bytes.
	digestAbove = 256 << 20
)

// Cluster returns a scenario of n equal operations, one rank a host, with
// chunks of one packet, one chain, one subgroup and nothing eager. On a network
// that drops, a window keeps receive queues from overflowing.
func Cluster(net network.Config, op multicast.Op, n int) Scenario {
	p := net.Tree.Hosts
	s := Scenario{
		Seed: 1, Net: net, Depth: 2, Burst: 16, PacketBytes: PacketBytes,
		Core: multicast.Config{
			Size: p, Chunk: PacketBytes, Chains: 1, Subgroups: 1, Window: net.Depth, EagerChunks: 1,
			Cutoff: time.Millisecond, Reorder: 50 * time.Microsecond,
		},
	}
	shards := p
	if op.Collective == wire.Broadcast {
		shards = 1
	}
	s.Digest = float64(p)*float64(shards)*float64(op.Bytes) > digestAbove
	for range n {
		s.Ops = append(s.Ops, Op{Op: op})
	}
	return s
}

// Coarse makes every chunk a train of so many packets, which the network moves
// in one event: less detail, and that much faster. A train is lost as a whole.
func (sc *Scenario) Coarse(packets int) {
	sc.Core.Chunk *= packets
	if sc.Core.Window > 0 {
		sc.Core.Window = max(2, sc.Core.Window/packets)
	}
	sc.Burst = max(1, sc.Burst/packets)
}
