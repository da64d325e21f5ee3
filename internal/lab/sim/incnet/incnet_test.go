package incnet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// random runs the random scenario of a seed.
func random(seed uint64) Result {
	s := Random(seed)
	return s.Run()
}

func TestSeeds(t *testing.T) {
	seeds := systest.Draw[uint64](120, 2000)
	var total Result
	many, rooted, forged, late, full := 0, 0, 0, 0, 0
	for seed := uint64(1); seed <= seeds; seed++ {
		r := random(seed)
		require.NoError(t, r.Err, "%s", r.String())
		total.Add(&r)
		if r.Scenario.Terms.Ranks > 64 {
			many++
		}
		for i := range r.Scenario.Ops {
			if o := &r.Scenario.Ops[i]; o.To != 0 && o.Count > 0 {
				rooted++
			}
		}
		forged += int(r.Scenario.Net.Forge * 10)
		late += int(r.Scenario.Net.Late * 10)
		full += int(r.Scenario.Net.Full * 10)
	}
	// The seeds are worth something only if all this has happened.
	assert.Positive(t, total.Lost)
	assert.Positive(t, total.Overflow)
	assert.Positive(t, total.Resent)
	assert.Positive(t, total.Again)
	assert.Positive(t, total.Gaps)
	assert.Positive(t, total.Polls)
	assert.Positive(t, total.Refused)
	assert.Positive(t, total.Direct)
	assert.Positive(t, many)
	assert.Positive(t, rooted)
	assert.Positive(t, forged)
	assert.Positive(t, late)
	assert.Positive(t, full)
	assert.Greater(t, total.Sessions, int(seeds))
}

func TestSeedReplays(t *testing.T) {
	for seed := uint64(1); seed <= systest.Draw[uint64](5, 20); seed++ {
		a, b := random(seed), random(seed)
		assert.Equal(t, a.Hash, b.Hash)
		assert.Equal(t, a.Datagrams, b.Datagrams)
	}
}

// clean returns a seed's scenario on a network that loses, repeats and
// reorders nothing, where timers would come too late to be of any help.
func clean(seed uint64) Scenario {
	s := Random(seed)
	s.Net = Net{Delay: s.Net.Delay, Queue: 1 << 20, Work: s.Net.Work}
	s.NodeCrashes, s.RankCrash = nil, nil
	s.Terms.Cutoff = time.Hour
	return s
}

// TestClean: where nothing is lost nothing is sent twice, and nobody waits for
// a timer: not if old and forged datagrams come, nor if sockets have no room.
func TestClean(t *testing.T) {
	seeds := systest.Draw[uint64](12, 200)
	for name, vary := range map[string]func(*Net){
		"nothing else": func(*Net) {}, "late": func(n *Net) { n.Late = 0.2 },
		"forged": func(n *Net) { n.Forge = 0.2 }, "full": func(n *Net) { n.Full = 0.3 },
	} {
		unread := false
		for seed := uint64(1); seed <= seeds; seed++ {
			s := clean(seed)
			vary(&s.Net)
			r := s.Run()
			require.NoError(t, r.Err, "%s: %s", name, r.String())
			require.Zero(t, r.Resent+r.Again+r.Gaps+r.Polls, "%s: %s", name, r.String())
			require.Less(t, r.Time, 10*time.Second, "%s: %s", name, r.String())
			if name == "nothing else" {
				require.Zero(t, r.Refused, "%s", r.String())
			}
			if q := s.Terms.Queue; q > 0 {
				require.LessOrEqual(t, r.Unread, q, "%s: %s", name, r.String())
				unread = unread || q < s.Terms.Slots && r.Unread == q
			}
		}
		assert.True(t, unread, "a queue was full")
	}
}

// stream returns a scenario of one operation of many chunks in one stripe, with
// or without a node below the root to which ranks 1 and 3 are attached.
func stream(seed uint64, tree bool, queue, chunks int) Scenario {
	s := Scenario{
		Seed: seed, Parents: []int{-1}, At: []int{0, 0, 0, 0}, Depth: 1,
		Terms: innetwork.Terms{
			Ranks: 4, Stripes: 1, Chunk: 64, Slots: 64, Queue: queue, Wide: tree, Cutoff: 2 * time.Millisecond, Reorder: 200 * time.Microsecond,
		},
		Ops: []Op{{Op: collective.Op{Count: 16 * chunks, Type: reduce.F32}}},
		Net: Net{Delay: 10 * time.Microsecond, Queue: 1 << 20, Work: 200 * time.Nanosecond},
	}
	if tree {
		s.Parents, s.At = []int{-1, 0}, []int{0, 1, 0, 1}
	}
	return s
}

// TestGapIsReported: one contribution that is lost in mid-stream, on any way up, is sent again
// because of the gap alone, without a timer; the same holds for a message that says that some are
// kept.
func TestGapIsReported(t *testing.T) {
	const chunks = 50
	for _, kind := range []wire.SlotKind{wire.Contribution, wire.Kept} {
		for _, tree := range []bool{false, true} {
			for _, queue := range []int{0, 16} {
				if kind == wire.Kept && queue > 0 {
					continue // one message is all that a member may have unread: no other comes behind it
				}
				for seed := uint64(1); seed <= systest.Draw[uint64](4, 40); seed++ {
					s := stream(seed, tree, queue, chunks)
					s.Terms.Cutoff = time.Hour
					var first uint32
					seen, sent, at, lost := false, 0, int(seed*37%200), 0
					if kind == wire.Kept {
						at = int(seed % 3)
					}
					s.Net.Drop = func(h *wire.Slot, slots int) bool {
						if !seen {
							seen, first = true, h.Slot // a rank begins with slot 0
						}
						if h.Kind != kind {
							return false
						}
						sent++
						if lost > 0 || sent < at || h.Slot-first+uint32(slots)-1 > 4*chunks-5 {
							return false
						}
						lost = slots
						return true
					}
					r := s.Run()
					require.NoError(t, r.Err, "%s", r.String())
					require.Positive(t, lost)
					require.Equal(t, 1, r.Gaps, "%s", r.String())
					require.Zero(t, r.Polls+r.Again, "%s", r.String())
					require.Less(t, r.Time, time.Second, "%s", r.String())
					require.LessOrEqual(t, r.Resent, lost, "%s", r.String()) // not a rank's where a node's was lost
				}
			}
		}
	}
}

// TestPathsThatBreak: from some moment on no contribution arrives, or no result, while polls and
// answers do. The job ends soon after the timeout of its nodes.
func TestPathsThatBreak(t *testing.T) {
	for _, kind := range []wire.SlotKind{wire.Contribution, wire.Result} {
		for _, tree := range []bool{false, true} {
			for seed := uint64(1); seed <= systest.Draw[uint64](4, 20); seed++ {
				s := stream(seed, tree, 16, 50)
				passed := int(seed * 37 % 200)
				s.Net.Drop = func(h *wire.Slot, _ int) bool {
					if h.Kind == kind {
						passed--
					}
					return h.Kind == kind && passed < 0
				}
				r := s.Run()
				var path *innetwork.PathError
				require.ErrorAs(t, r.Err, &path, "%s", r.String())
				require.Equal(t, kind == wire.Result, path.Down, "%s", r.String())
				require.Less(t, r.Time, timeout+100*time.Millisecond, "%s", r.String())
			}
		}
	}
}

// TestLateRanksBreakNothing: ranks that post seconds after each other are waited for.
func TestLateRanksBreakNothing(t *testing.T) {
	for _, tree := range []bool{false, true} {
		s := stream(1, tree, 16, 50)
		s.Skew, s.Net.Loss = 10*timeout, 0.01
		r := s.Run()
		require.NoError(t, r.Err, "%s", r.String())
		require.Greater(t, r.Time, 2*timeout, "%s", r.String())
	}
}

// TestOwnersKeepTheirShards: without losses a rank sends the shards of the others
// once, and its own only if its sums are rounded, in trees as well.
func TestOwnersKeepTheirShards(t *testing.T) {
	const chunks, ranks = 50, 4
	for _, tree := range []bool{false, true} {
		for typ, shards := range map[reduce.Type]int{reduce.F32: ranks - 1, reduce.I32: ranks - 1, reduce.BF16: ranks} {
			for to, owners := range map[wire.Target]int{0: ranks, wire.ToRank(2): 1} {
				s := stream(1, tree, 16, chunks)
				s.Ops[0].Type, s.Ops[0].To = typ, to
				r := s.Run()
				require.NoError(t, r.Err, "%s", r.String())
				assert.Equal(t, shards*owners*s.Ops[0].Bytes(), r.Sent, "%v, %v, tree %t", typ, to, tree)
			}
		}
	}
}

// TestCopiesDoNotMultiply: where datagrams are reordered and duplicated, and every gap calls for a poll
// at once, polls and answers do not breed: it takes little more than to wait for what was overtaken.
func TestCopiesDoNotMultiply(t *testing.T) {
	for _, tree := range []bool{false, true} {
		for _, dup := range []float64{0.01, 0.1, 0.3} {
			var counts [2]Result
			for seed := uint64(1); seed <= systest.Draw[uint64](2, 10); seed++ {
				for i, reorder := range []time.Duration{0, 20 * time.Microsecond} {
					s := stream(seed, tree, 0, 200)
					s.Terms.Cutoff, s.Terms.Reorder, s.Terms.Slots = 200*time.Microsecond, reorder, 16
					s.Net = Net{Delay: time.Microsecond, Jitter: 282, Dup: dup, Queue: 8}
					r := s.Run()
					require.NoError(t, r.Err, "%s", r.String())
					counts[i].Add(&r)
				}
			}
			t.Logf("tree %t, dup %v: %d datagrams, %d polls; with time to arrive %d, %d", tree, dup,
				counts[0].Datagrams, counts[0].Polls, counts[1].Datagrams, counts[1].Polls)
			assert.Less(t, float64(counts[0].Datagrams), 1.7*float64(counts[1].Datagrams), "tree %t, dup %v", tree, dup)
		}
	}
}

// TestLossCosts: contributions and results go again about as often as they are
// lost. A lost result takes up to two polls: the second once what crossed with the first is here.
func TestLossCosts(t *testing.T) {
	for _, tree := range []bool{false, true} {
		for _, queue := range []int{0, 16} {
			var total Result
			lost, slots := map[wire.SlotKind]int{}, 0
			for seed := uint64(1); seed <= systest.Draw[uint64](1, 5); seed++ {
				s := stream(seed, tree, queue, 500)
				rng := rand.New(rand.NewPCG(seed, 3))
				s.Net.Drop = func(h *wire.Slot, n int) bool {
					if rng.IntN(100) > 0 {
						return false
					}
					if lost[h.Kind]++; h.Kind == wire.Contribution || h.Kind == wire.Kept {
						slots += n
					}
					return true
				}
				r := s.Run()
				require.NoError(t, r.Err, "%s", r.String())
				total.Add(&r)
			}
			t.Logf("tree %t, queue %d: lost %v; %d resent, %d again, %d gaps, %d polls", tree, queue, lost, total.Resent, total.Again, total.Gaps, total.Polls)
			contributions, results := float64(lost[wire.Contribution]+lost[wire.Kept]), float64(lost[wire.Result])
			assert.LessOrEqual(t, float64(total.Resent), 1.1*float64(slots))
			assert.LessOrEqual(t, float64(total.Gaps), 1.1*contributions)
			assert.LessOrEqual(t, float64(total.Again), 1.1*results)
			assert.LessOrEqual(t, float64(total.Polls), 2.2*results)
		}
	}
}
