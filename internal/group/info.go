package group

import (
	"slices"
	"sync/atomic"
	"time"
)

// Info describes a group. All but Notes, ReduceScatter and its reason does not change.
type Info struct {
	Rank   int    `json:"rank"`
	Size   int    `json:"size"`
	Fabric string `json:"fabric"`
	// Reason says why this fabric was chosen.
	Reason string `json:"reason"`
	// Interface is the network interface that multicast uses; empty for shm.
	Interface  string `json:"interface"`
	ChunkBytes int    `json:"chunk_bytes"`
	// WindowBytes is how far a root sends ahead of the slowest receiver; 0: as far as it likes.
	WindowBytes int    `json:"window_bytes"`
	SIMD        string `json:"simd"`
	// Notes tell what the group does without, and why, and what has made it slow since Join.
	Notes []string `json:"notes"`
	// ReduceScatter is where the next Reduce-Scatter goes, as far as this rank knows: "switch" or
	// "direct"; ReduceScatterReason says through which switch, or why not.
	ReduceScatter       string `json:"reduce_scatter"`
	ReduceScatterReason string `json:"reduce_scatter_reason"`
}

// Stats count what a group did since Join. Bytes are of this rank.
type Stats struct {
	GatherOps          uint64 // operations done
	GatherBytes        uint64 // shards of this rank in operations posted
	GatherSentBytes    uint64 // multicast, headers included
	GatherControlBytes uint64 // control messages and repairs sent
	GatherReceived     uint64 // bytes received
	ReduceOps          uint64
	ReduceBytes        uint64
	ReduceSentBytes    uint64
	ChunksLost         uint64 // asked for, and multicast did not bring them after all
	ChunksRepaired     uint64 // arrived by repair
	ChunksInjected     uint64 // dropped on purpose, MCAST_LOSS
	ChunksDropped      uint64 // duplicates, stale, malformed
	GatherBusy         time.Duration
	ReduceBusy         time.Duration
	Overlap            time.Duration // both kinds in flight together
	ReduceReceived     uint64        // bytes received from ranks and the switch
	ReduceResent       uint64        // contributions that the switch had not got
	ReduceRefused      uint64        // datagrams that claimed to be the switch's and were not, or were garbled
	SwitchOps          uint64        // of ReduceOps, done through the switch
	DirectOps          uint64        // of ReduceOps, done directly, perhaps after the switch was lost
	Fallbacks          uint64        // times that the switch was given up
	ReduceDropped      uint64        // results from the switch that came again
	ChunksMismatched   uint64        // of another operation than this rank has called: a stranger's, as no error followed
	SendsRefused       uint64        // multicast datagrams that a firewall or security policy of this host refused
	SendsOffline       uint64        // multicast datagrams not sent because the interface was down or had no address
	SendsTooLarge      uint64        // multicast datagrams larger than the interface's MTU, which was lowered
	Warnings           uint64        // causes of slowness that were logged and noted, see Info
}

type tally struct{ gatherBytes, reduceBytes, fallbacks atomic.Uint64 }

// Info returns what the group is now.
func (g *Group) Info() Info {
	i, w := g.info, g.way.Load()
	i.Notes = append(slices.Clone(i.Notes), g.warnings.all()...)
	i.ReduceScatter, i.ReduceScatterReason = "direct", w.reason
	if g.reduce.Switched() && w.via != "" {
		i.ReduceScatter, i.ReduceScatterReason = "switch", w.via
	}
	return i
}

// Stats returns the counters.
func (g *Group) Stats() Stats {
	c, f := g.gather.Stats()
	r := g.reduce.Stats()
	s := Stats{
		GatherOps: c.Done, GatherBytes: g.tally.gatherBytes.Load(),
		GatherSentBytes: f.SentBytes, GatherControlBytes: f.ControlBytes, GatherReceived: f.ReceivedBytes,
		ReduceOps: r.Switched + r.Direct, ReduceBytes: g.tally.reduceBytes.Load(), ReduceSentBytes: r.SentBytes,
		ChunksLost: c.Lost, ChunksRepaired: c.Repaired, ChunksInjected: f.Injected + r.Injected,
		ChunksDropped: f.Dropped - min(f.Injected, f.Dropped), ChunksMismatched: c.Mismatched,
	}
	s.ReduceReceived, s.ReduceResent, s.ReduceRefused, s.ReduceDropped = r.ReceivedBytes, r.Resent, r.Refused, r.Dropped
	s.SwitchOps, s.DirectOps, s.Fallbacks = r.Switched, r.Direct, g.tally.fallbacks.Load()
	s.SendsRefused, s.SendsOffline, s.SendsTooLarge = f.Refused, f.Unreachable, f.TooLarge
	s.Warnings = uint64(len(g.warnings.all()))
	s.GatherBusy, s.ReduceBusy, s.Overlap = g.meter.Times()
	return s
}
