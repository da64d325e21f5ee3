package reduction

import (
	"fmt"
	"math/bits"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Time is virtual.
type Time = network.Time

// Config is a Reduce-Scatter (sum) and the network that it runs on.
type Config struct {
	Net   network.Config
	Seed  uint64 // of the network's faults and of the inputs
	Ranks int    // hosts 0 to Ranks-1 take part; 0: all
	Bytes int    // N, of a shard
	Type  string // of the elements: f32, f64, i32 or bf16; "": f32

	Chunk   int // most payload bytes of a datagram, a multiple of 8 up to 64 KiB; 0: 4096
	Stripes int // 0: one a tree, at most 8, in each track
	Tracks  int // as in innetwork.Terms; 0: one
	// Slots is the window of each stripe in chunks, a power of two up to innetwork.MaxSlots. 0: so
	// many that each holds 4 N, a single one 8 N, those of all stripes in use 1 MiB, and 32 at
	// least: a switch adds nothing before a whole chunk is there, so a large one is long on its
	// way.
	Slots int
	// Ahead is how many bytes of contributions an idle NIC is given at a time.
	// 0: two chunks, and 32 KiB at least.
	Ahead int

	// Windows is in how many parts each shard is reduced, one shard after another and InFlight parts at
	// a time, as NCCL does it; 0: all shards in one operation.
	Windows  int
	InFlight int  // 0: Depth
	Skew     Time // the longest pause of a rank before it posts a window
	// Link, if not nil, returns what ranks know of a host's sending link, which others share.
	Link func(host int) fabric.Link

	Cutoff, Reorder Time // as in innetwork.Terms; 0: 1 ms and 100 us

	// The time that a switch takes to add a contribution or to pass a message on, each stripe by
	// itself. 0: none, it sums at line rate.
	SwitchCost        Time
	SwitchCostPerByte float64 // ns
}

// Limits of the values that are chosen by default.
const (
	defaultChunk   = 4096
	defaultStripes = 8
	leastWindow    = 1 << 20
	leastSlots     = 32
	leastAhead     = 32 << 10
)

// Depth is how many windows NCCL has in flight.
const Depth = 8

// types are the types that have exact sums over all ranks, given small numbers.
var types = map[string]reduce.Type{
	"": reduce.F32, "f32": reduce.F32, "f64": reduce.F64, "i32": reduce.I32, "bf16": reduce.BF16,
}

// fill returns the configuration with all values that were left open chosen for a topology, or an
// error if it is wrong.
func (c Config) fill(t *fattree.Tree) (Config, error) {
	typ, known := types[c.Type]
	hosts := t.Hosts
	or := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	or(&c.Ranks, hosts)
	or(&c.Chunk, defaultChunk)
	or(&c.Tracks, 1)
	or(&c.Stripes, c.Tracks*min(t.Trees(), defaultStripes))
	or(&c.InFlight, Depth)
	or(&c.Ahead, max(2*c.Chunk, leastAhead))
	if c.Cutoff == 0 {
		c.Cutoff = 1e6
	}
	if c.Reorder == 0 {
		c.Reorder = 1e5
	}
	switch {
	case !known:
		return c, fmt.Errorf("reduction: type %q: want f32, f64, i32 or bf16", c.Type)
	case c.Ranks < 1 || c.Ranks > hosts:
		return c, fmt.Errorf("reduction: %d ranks on %d hosts: want 1 to %d", c.Ranks, hosts, hosts)
	case c.Bytes < 0 || c.Bytes%typ.Size() != 0:
		return c, fmt.Errorf("reduction: shards of %d bytes: want a multiple of %d, the size of %v", c.Bytes, typ.Size(), typ)
	case c.Windows < 0 || c.Windows > 0 && c.Bytes%(c.Windows*typ.Size()) != 0:
		return c, fmt.Errorf("reduction: %d windows of %d bytes: want parts of whole elements", c.Windows, c.Bytes)
	case c.Ahead < 1:
		return c, fmt.Errorf("reduction: %d bytes ahead: want 1 or more", c.Ahead)
	case c.Cutoff < 0 || c.Reorder < 0 || c.Skew < 0 || c.SwitchCost < 0 || c.SwitchCostPerByte < 0:
		return c, fmt.Errorf("reduction: a time is negative: cutoff %v, reorder %v, skew %v, switch %v and %v ns a byte",
			c.Cutoff, c.Reorder, c.Skew, c.SwitchCost, c.SwitchCostPerByte)
	}
	if c.Slots == 0 && c.Chunk > 0 && c.Stripes > 0 {
		rows := (c.Bytes + innetwork.BlockBytes - 1) / innetwork.BlockBytes // go to the stripes in turn
		used := max(1, min(c.Stripes, rows))
		window := max(leastWindow/used, 8*c.Bytes/min(used, 2)) / c.Chunk
		c.Slots = min(innetwork.MaxSlots, 1<<bits.Len(uint(max(window, leastSlots)-1)))
	}
	terms := c.terms(true)
	return c, terms.Check()
}

// terms are what members and switches agree on. wide: the switches form a tree.
func (c *Config) terms(wide bool) innetwork.Terms {
	return innetwork.Terms{
		Job: c.Seed, Ranks: c.Ranks, Stripes: c.Stripes, Tracks: c.Tracks, Chunk: c.Chunk, Slots: c.Slots,
		Wide: wide, Cutoff: c.Cutoff, Reorder: c.Reorder,
	}
}

func (c *Config) typ() reduce.Type { return types[c.Type] }
