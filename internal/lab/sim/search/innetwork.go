package search

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/incnet"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// InNetwork is internal/protocol/innetwork over internal/lab/sim/incnet.
var InNetwork = &Kind[incnet.Scenario]{
	Title:  "the in-network Reduce-Scatter",
	Flags:  " --inc",
	Random: incnet.Random,
	Run: func(s *incnet.Scenario) Outcome {
		r := s.Run()
		return Outcome{
			Err: r.Err, Ops: r.Ops / s.Terms.Ranks, Ranks: r.Ops, Events: r.Events, Bytes: r.Bytes, Hash: r.Hash,
			Text: func() string { return r.String() },
		}
	},
	Fit:     fitInNetwork,
	Changes: []Change[incnet.Scenario]{fewerNodes},
}

// fewerNodes removes a node of the tree.
func fewerNodes(s *incnet.Scenario, n int) bool {
	n++ // the root stays
	if n >= len(s.Parents) {
		return false
	}
	s.Remove(n)
	return true
}

// fitInNetwork mends what names a rank or a node that is gone. The bounds are those of incnet.Random.
func fitInNetwork(s *incnet.Scenario) bool {
	t := &s.Terms
	t.Ranks = min(t.Ranks, len(s.At))
	s.At = s.At[:t.Ranks]
	if t.Ranks == 0 || len(s.Parents) == 0 || s.Parents[0] != -1 {
		return false
	}
	for n, up := range s.Parents[1:] {
		if up < 0 || up > n {
			return false
		}
	}
	for _, at := range s.At {
		if at < 0 || at >= len(s.Parents) {
			return false
		}
	}
	s.Prune()
	t.Wide = len(s.Parents) > 1
	t.Stripes, t.Chunk, t.Slots = max(t.Stripes, 1), max(t.Chunk, 8), max(t.Slots, 1)
	s.Depth, s.Net.Queue = max(s.Depth, 1), max(s.Net.Queue, 1)
	s.Net.Delay = max(s.Net.Delay, time.Microsecond) // time must pass, or what happens together always does
	for i := range s.Ops {
		o := &s.Ops[i]
		if root, one := o.To.Root(); one {
			o.To = wire.ToRank(min(root, t.Ranks-1))
		}
		if !o.Reduction.Takes(o.Type) || o.Count < 0 {
			return false
		}
	}
	s.NodeCrashes = slices.DeleteFunc(s.NodeCrashes, func(c incnet.Crash) bool { return c.Who >= len(s.Parents) })
	if s.RankCrash != nil && s.RankCrash.Who >= t.Ranks {
		s.RankCrash = nil
	}
	return t.Check() == nil && t.Job == 0 && t.First == 0 && t.Cutoff >= leastCutoff &&
		s.Depth <= collective.MaxInFlight && s.Net.Loss <= 0.3
}
