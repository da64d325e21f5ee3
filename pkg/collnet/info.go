package collnet

import (
	"sync/atomic"
	"time"
)

// Info describes a group; it does not change.
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
	// Notes tell what the group does without, and why.
	Notes []string `json:"notes"`
	// ReduceScatter is the algorithm, ReduceScatterReason why that one.
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
}

type tally struct{ gatherBytes, reduceBytes atomic.Uint64 }

// Info returns what the group is.
func (g *Group) Info() Info { return g.info }

// Stats returns the counters.
func (g *Group) Stats() Stats {
	c, f := g.gather.Stats()
	done, r := g.reduce.Stats()
	s := Stats{
		GatherOps: c.Done, GatherBytes: g.tally.gatherBytes.Load(),
		GatherSentBytes: f.SentBytes, GatherControlBytes: f.ControlBytes, GatherReceived: f.ReceivedBytes,
		ReduceOps: done, ReduceBytes: g.tally.reduceBytes.Load(), ReduceSentBytes: r.SentBytes,
		ChunksLost: c.Lost, ChunksRepaired: c.Repaired, ChunksInjected: f.Injected,
		ChunksDropped: f.Dropped - min(f.Injected, f.Dropped),
	}
	s.GatherBusy, s.ReduceBusy, s.Overlap = g.meter.Times()
	return s
}
