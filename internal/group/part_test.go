package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// cutUp is an Allgather and a Reduce-Scatter cut into parts, with all that they give.
type cutUp struct {
	*exercise
	cuts     []int // where parts begin, and the end
	gathered []byte
	inPlace  bool
}

func newCutUp(rng *rand.Rand, ranks, count int, typ reduce.Type, cuts []int) *cutUp {
	w := &cutUp{exercise: newExercise(rng, ranks, count, typ, reduce.Sum), inPlace: rng.IntN(2) == 0}
	for _, at := range cuts {
		w.cuts = append(w.cuts, at*typ.Size())
	}
	w.gathered = make([]byte, ranks*w.bytes)
	fill(w.gathered, count)
	return w
}

// every cuts n elements into parts of a length.
func every(n, step int) []int {
	var cuts []int
	for at := 0; at < n; at += step {
		cuts = append(cuts, at)
	}
	return append(cuts, n)
}

// scatter runs the Reduce-Scatter on a rank with that many parts in flight. Parts
// lie in buffers of their own, as NCCL's do.
func (s *cutUp) scatter(t *testing.T, g *Group, depth int) error {
	r := g.Rank()
	result := make([]byte, 0, s.bytes)
	var works []*Work
	var recvs, parts [][]byte
	for i := range len(s.cuts) - 1 + depth {
		if i >= depth {
			if err := works[i-depth].Wait(t.Context()); err != nil {
				return err
			}
			result = append(result, recvs[i-depth]...)
			from, to := s.cuts[i-depth], s.cuts[i-depth+1]
			if !s.inPlace {
				require.Equal(t, s.sends[r][from:to], parts[i-depth], "the input is untouched")
			}
		}
		if i >= len(s.cuts)-1 {
			continue
		}
		p := part{slices.Clone(s.sends[r][s.cuts[i]:s.cuts[i+1]]), s.bytes, s.cuts[i]}
		recv := p.in(r)
		if !s.inPlace {
			recv = make([]byte, len(recv))
		}
		work, err := g.StartReduceScatterPart(p.buf, recv, p.shard, p.offset, s.typ, s.op, 0)
		if err != nil {
			return err
		}
		works, recvs, parts = append(works, work), append(recvs, recv), append(parts, p.buf)
	}
	require.Len(t, result, s.bytes)
	return s.check(g, result)
}

// gather runs the Allgather on a rank with that many parts in flight.
func (s *cutUp) gather(t *testing.T, g *Group, depth int) error {
	r := g.Rank()
	var works []*Work
	var sends, parts [][]byte
	for i := range len(s.cuts) - 1 + depth {
		if i >= depth {
			if err := works[i-depth].Wait(t.Context()); err != nil {
				return err
			}
			from, to := s.cuts[i-depth], s.cuts[i-depth+1]
			want := part{s.gathered[from:to:to], s.bytes, from}
			require.Equal(t, want.buf, parts[i-depth], "part %d, bytes %d to %d of shards of %d", i-depth, from, to, s.bytes)
			require.Equal(t, want.in(r), sends[i-depth], "send is untouched")
		}
		if i >= len(s.cuts)-1 {
			continue
		}
		p := part{make([]byte, s.cuts[i+1]-s.cuts[i]), s.bytes, s.cuts[i]}
		theirs := part{s.gathered[s.cuts[i]:s.cuts[i+1]], s.bytes, s.cuts[i]}
		send := p.in(r)
		if !s.inPlace {
			send = make([]byte, len(send))
		}
		copy(send, theirs.in(r))
		work, err := g.StartAllgatherPart(send, p.buf, p.shard, p.offset)
		if err != nil {
			return err
		}
		works, sends, parts = append(works, work), append(sends, send), append(parts, p.buf)
	}
	return nil
}

// TestParts: parts within a slot, over several, and of everything, of any
// length, many in flight, of both kinds at once.
func TestParts(t *testing.T) {
	const p = 4
	types := []reduce.Type{reduce.F32, reduce.BF16, reduce.I8, reduce.F64}
	onBoth(t, p, func(t *testing.T, g []*Group) {
		rng := seeded(1)
		var all []*cutUp
		for i, count := range []int{0, 1, 7, 1000, 65_536, 120_001} {
			for _, step := range []int{p * count, count, count/3 + 1, 3*count/2 + 1, 32_768} {
				if step == 0 || p*count/step > 100 {
					continue
				}
				all = append(all, newCutUp(rng, p, count, types[i%len(types)], every(p*count, step)))
			}
			cuts := []int{0, p * count}
			for range rng.IntN(12) {
				cuts = append(cuts, rng.IntN(p*count+1)) // some twice: parts of nothing
			}
			slices.Sort(cuts)
			all = append(all, newCutUp(rng, p, count, types[i%len(types)], cuts))
		}
		for _, s := range all {
			depths := []int{1, 8}
			if s.bytes > 1<<16 {
				depths = depths[1:] // one at a time is the same at any length
			}
			for _, depth := range depths {
				each(t, p, func(r int) error {
					done := make(chan error, 1)
					go func() { done <- s.gather(t, g[r], depth) }()
					err := s.scatter(t, g[r], depth)
					require.NoError(t, <-done)
					return err
				})
			}
		}
	})
}

// TestPartsThroughTheSwitch: the switch has them all, and when it is lost, they end all the same.
func TestPartsThroughTheSwitch(t *testing.T) {
	n := node(t, switchd.Config{})
	g := world(t, 3, via("udp", n))
	rng := seeded(2)
	run := func() {
		s := newCutUp(rng, 3, 100_000, reduce.F32, every(300_000, 70_001))
		each(t, 3, func(r int) error { return s.scatter(t, g[r], 32) })
	}
	run()
	for r := range g {
		assert.EqualValues(t, 7, g[r].Stats().SwitchOps, "5 parts, of which 2 straddle")
	}
	each(t, 4, func(i int) error {
		if i == 3 {
			return n.Close()
		}
		return nil
	})
	run()
	until(t, g, "direct")
}

// TestPartOverManyShards: as many operations as the lane queues, and more in one part.
func TestPartOverManyShards(t *testing.T) {
	const p = 5
	g := world(t, p, func(s *config.Settings) { s.Fabric = "shm" })
	s := newCutUp(seeded(3), p, 8, reduce.I16, []int{0, 39, 40})
	each(t, p, func(r int) error {
		for range 300 {
			if err := s.gather(t, g[r], 2); err != nil {
				return err
			}
			if err := s.scatter(t, g[r], 2); err != nil {
				return err
			}
		}
		return nil
	})
	require.ErrorIs(t, fillUp(g[0]), engine.ErrBusy)
}

// fillUp posts parts until one is refused.
func fillUp(g *Group) error {
	for range 2 * engine.MaxQueued {
		if _, err := g.StartAllgatherPart(make([]byte, 16), make([]byte, 79), 16, 0); err != nil {
			return err
		}
	}
	return fmt.Errorf("none was")
}

func TestPartArguments(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })[1]
	buf := make([]byte, 64)
	gather := func(send, buf []byte, shard, offset int) error {
		return g.AllgatherPart(send, buf, shard, offset)
	}
	scatter := func(buf, recv []byte, shard, offset int) error {
		return g.ReduceScatterPart(buf, recv, shard, offset, reduce.F32, reduce.Sum, 0)
	}
	for want, err := range map[string]error{
		"shard of -1 bytes":                        gather(nil, nil, -1, 0),
		"shard of 4611686018427387904 bytes":       gather(nil, nil, 1<<62, 0),
		"window of 8 bytes at -4":                  gather(nil, buf[:8], 32, -4),
		"window of 60 bytes at 8 does not":         gather(buf[:32], buf[:60], 32, 8),
		"window of 0 bytes at 65":                  gather(nil, nil, 32, 65),
		"send has 4 bytes; of this rank's":         gather(buf[:4], make([]byte, 8), 32, 0),
		"send has 0 bytes":                         gather(nil, make([]byte, 8), 32, 28),
		"send overlaps the window":                 gather(buf[:4], buf[:8], 32, 28),
		"recv overlaps the window":                 scatter(buf[:8], buf[:4], 32, 28),
		"recv has 8 bytes":                         scatter(buf[:8], buf[32:40], 32, 28),
		"shards of 30 bytes":                       scatter(buf[:8], nil, 30, 0),
		"window of 8 bytes at 2; all":              scatter(buf[:8], nil, 32, 2),
		"window of 7 bytes at 0; all":              scatter(buf[:7], nil, 32, 0),
		"reduce-scatter window: unknown element":   g.ReduceScatterPart(buf, buf[:32], 32, 0, 77, reduce.Sum, 0),
		"reduce-scatter window: unknown reduction": g.ReduceScatterPart(buf, buf[:32], 32, 0, reduce.F32, 9, 0),
	} {
		var a *team.ArgumentError
		require.ErrorAs(t, err, &a, want)
		assert.ErrorContains(t, err, want)
	}
	require.NoError(t, gather(nil, nil, 32, 64), "a part of nothing")
	require.NoError(t, scatter(nil, nil, 32, 0), "a part of nothing")
}
