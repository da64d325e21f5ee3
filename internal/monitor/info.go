package monitor

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Info describes a group. Notes, Allgather, ReduceScatter and their reasons may change, all else does
// not.
type Info struct {
	Rank   int    `json:"rank"`
	Size   int    `json:"size"`
	Fabric string `json:"fabric"`
	// Reason says why this fabric was chosen.
	Reason string `json:"reason"`
	// Interface is the network interface that multicast uses; empty for shm.
	Interface string `json:"interface"`
	// Rails are further interfaces that carry subgroups of multicast.
	Rails      []string `json:"rails"`
	Address    string   `json:"address"` // where other ranks reach this one
	ChunkBytes int      `json:"chunk_bytes"`
	// WindowBytes is how far a root sends ahead of the slowest receiver; 0: as far as it likes.
	WindowBytes int    `json:"window_bytes"`
	SIMD        string `json:"simd"`
	// Notes tell what the group does without, and why, and what has made it slow since Join.
	Notes []string `json:"notes"`
	// Allgather is how what this rank sends of Allgathers and Broadcasts travels now: by "multicast", by
	// "unicast" from rank to rank, or through "shared memory"; AllgatherReason says why.
	Allgather       string `json:"allgather"`
	AllgatherReason string `json:"allgather_reason"`
	// ReduceScatter is where the next Reduce-Scatter goes, as far as this rank knows: "switch" or
	// "direct"; ReduceScatterReason says through which switch, or why not.
	ReduceScatter       string `json:"reduce_scatter"`
	ReduceScatterReason string `json:"reduce_scatter_reason"`
	// Peers are the other ranks and the paths from them to this one; Unheard are the pairs of all
	// ranks, from and to, between which multicast did not pass, as all ranks found when they joined.
	Peers   []fabrics.Peer `json:"peers"`
	Unheard [][2]int       `json:"unheard"`
	// Topology is where this host is in the network, as MCAST_TOPOLOGY or Slurm says; may be empty. Ring is the order of
	// ranks in which data go from rank to rank: all ranks, or with nodes only the ranks of this one's column.
	Topology string `json:"topology"`
	Ring     []int  `json:"ring"`
	// Nodes is the number of hosts if the ranks of each host work together as a node; 0: every rank
	// stands alone. NodesReason says why.
	Nodes       int    `json:"nodes"`
	NodesReason string `json:"nodes_reason"`
}

// counters are of what a group itself counts.
type counters struct{ fallbacks, refusedRegistrations atomic.Uint64 }

// Fallback counts that the switch was given up.
func (m *Monitor) Fallback() { m.counters.fallbacks.Add(1) }

// RefusedRegistration counts that memory could not be registered.
func (m *Monitor) RefusedRegistration() { m.counters.refusedRegistrations.Add(1) }

// Route says how Reduce-Scatters go, in words.
type Route struct {
	Reason string // why directly
	Via    string // through which switch, if that
}

// SetRoute notes how Reduce-Scatters go from now on.
func (m *Monitor) SetRoute(r Route) { m.route.Store(&r) }

// Route returns how Reduce-Scatters go.
func (m *Monitor) Route() Route { return *m.route.Load() }

// Info returns what the group is now.
func (m *Monitor) Info() Info {
	i, w := m.info, m.route.Load()
	i.Notes = append(slices.Clone(i.Notes), m.warnings.all()...)
	now, _ := m.ops.Column().Gather.Stats()
	i.Allgather, i.AllgatherReason = m.travels.Now(&now)
	i.ReduceScatter, i.ReduceScatterReason = "direct", w.Reason
	if a := m.plan; !a.Crosses() {
		i.ReduceScatterReason = fmt.Sprintf("rank %d of the same host stands for this one",
			a.Node.Ranks[a.Node.Own%a.Columns])
	}
	if m.ops.Column().Reduce.Switched() && w.Via != "" {
		i.ReduceScatter, i.ReduceScatterReason = "switch", w.Via
	}
	return i
}

// Multicast reports whether multicast was to reach all ranks when they joined.
func (m *Monitor) Multicast() bool { return m.travels.By != fabrics.Unicast }

// sources are what the counters are read from, as internal/api says.
type sources struct {
	gather               multicast.Stats
	fabric               fabric.Stats
	reduce               engine.ReduceStats
	calls                hierarchy.Counts
	refusedRegistrations uint64
	fallbacks            uint64
	warnings             []string
	device               staging.Stats
	messages             engine.ExchangeStats

	gatherWaits, reduceWaits        overlap.Account
	gatherBusy, reduceBusy, overlap time.Duration
}

// Stats returns the counters.
func (m *Monitor) Stats() Stats {
	s := sources{
		refusedRegistrations: m.counters.refusedRegistrations.Load(),
		reduce:               m.ops.Column().Reduce.Stats(),
		fallbacks:            m.counters.fallbacks.Load(), warnings: m.warnings.all(),
		gatherWaits: m.ops.Waited(overlap.Gather), reduceWaits: m.ops.Waited(overlap.Reduce),
	}
	s.gather, s.fabric = m.ops.Column().Gather.Stats()
	s.calls = m.ops.Counts(hierarchy.Ended{Gathered: s.gather.Done, Switched: s.reduce.Switched, Direct: s.reduce.Direct})
	s.device, s.messages = m.device(), m.messages.Stats()
	s.gatherBusy, s.reduceBusy, s.overlap = m.ops.Busy()
	return s.stats()
}
