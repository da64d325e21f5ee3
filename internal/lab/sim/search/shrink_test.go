package search

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// toy is a scenario with a predicate for a run.
type toy struct {
	Seed  uint64
	Size  int
	Loss  float64
	Ops   []toyOp
	Calm  bool
	Names map[string]int
	Deep  struct{ Pause time.Duration }
}

type toyOp struct{ Root, Bytes int }

func toyKind(fails func(*toy) bool) *Kind[toy] {
	k := &Kind[toy]{Title: "toys"}
	k.Random = func(seed uint64) toy {
		r := rand.New(rand.NewPCG(seed, 1))
		t := toy{
			Seed: seed, Size: 1 + r.IntN(100), Loss: r.Float64(), Calm: r.IntN(2) == 0,
			Names: map[string]int{"a": 1 + r.IntN(9), "b": 7},
		}
		for range r.IntN(200) {
			t.Ops = append(t.Ops, toyOp{r.IntN(t.Size), r.IntN(1 << 20)})
		}
		t.Deep.Pause = time.Duration(r.Int64N(int64(time.Second)))
		return t
	}
	k.Run = func(t *toy) Outcome {
		o := Outcome{Ops: len(t.Ops), Text: func() string { return fmt.Sprintf("%+v", *t) }}
		if fails(t) {
			o.Err = errors.New("as told")
		}
		return o
	}
	k.Fit = func(t *toy) bool {
		for i := range t.Ops {
			t.Ops[i].Root = min(t.Ops[i].Root, t.Size-1)
		}
		return t.Size > 0
	}
	return k
}

var enough = Budget{Runs: 5000, Time: systest.Limit}

// firstFailure returns a random scenario that fails.
func firstFailure[S any](t *testing.T, k *Kind[S]) S {
	for seed := uint64(1); seed < 1000; seed++ {
		if k.seed(seed).Err != nil {
			return k.Random(seed)
		}
	}
	require.Fail(t, "no random scenario fails")
	panic("unreachable")
}

// TestShrinkFindsTheCause: of a large scenario that is left which makes it fail.
func TestShrinkFindsTheCause(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(*toy) bool
		want  string
	}{
		"always": {func(*toy) bool { return true }, `{"Size":1}`},
		"two operations far apart": {func(t *toy) bool {
			large := 0
			for _, o := range t.Ops {
				if o.Bytes >= 5000 {
					large++
				}
			}
			return large >= 2
		}, `{"Ops":[{"Bytes":5000},{"Bytes":5000}],"Size":1}`},
		"a root and a size": {func(t *toy) bool {
			for _, o := range t.Ops {
				if o.Root == 3 && t.Size > 9 {
					return true
				}
			}
			return false
		}, `{"Ops":[{"Root":3}],"Size":10}`},
		"a share":            {func(t *toy) bool { return t.Loss > 0.25 && t.Loss <= 0.3 }, `{"Loss":0.3,"Size":1}`},
		"a flag":             {func(t *toy) bool { return t.Calm }, `{"Calm":true,"Size":1}`},
		"a name":             {func(t *toy) bool { return t.Names["b"] > 3 }, `{"Names":{"b":4},"Size":1}`},
		"something far down": {func(t *toy) bool { return t.Deep.Pause > time.Millisecond }, `{"Deep":{"Pause":`},
	} {
		k := toyKind(c.fails)
		s := firstFailure(t, k)
		got, err := k.Shrink(s, enough)
		require.NoError(t, err, name)
		assert.Error(t, got.Outcome.Err, name)
		assert.False(t, got.Spent, name)
		if name == "something far down" {
			small, err := decode[toy]([]byte(got.JSON))
			require.NoError(t, err)
			assert.Less(t, small.Deep.Pause, 1010*time.Microsecond)
			small.Deep.Pause = 0
			assert.Equal(t, toy{Size: 1}, small)
			continue
		}
		assert.Equal(t, c.want, got.JSON, name)
		again, err := k.Shrink(s, enough)
		require.NoError(t, err, name)
		assert.Equal(t, got.JSON, again.JSON, "%s: the same from the same", name)
		assert.Equal(t, got.Runs, again.Runs, name)
	}
}

// TestShrinkTriesOtherSeeds: a smaller scenario may need another seed to fail.
func TestShrinkTriesOtherSeeds(t *testing.T) {
	k := toyKind(func(t *toy) bool { return len(t.Ops) > 50 || t.Seed == 3 })
	got, err := k.Shrink(firstFailure(t, k), enough)
	require.NoError(t, err)
	assert.Equal(t, `{"Seed":3,"Size":1}`, got.JSON)
}

// TestShrinkKeepsToItsBudget in runs and in time.
func TestShrinkKeepsToItsBudget(t *testing.T) {
	k := toyKind(func(t *toy) bool { return len(t.Ops) > 20 && t.Loss > 0 })
	s := firstFailure(t, k)
	got, err := k.Shrink(s, Budget{Runs: 9, Time: systest.Limit})
	require.NoError(t, err)
	assert.True(t, got.Spent)
	assert.Equal(t, 9, got.Runs)
	small, err := decode[toy]([]byte(got.JSON))
	require.NoError(t, err)
	assert.Greater(t, len(small.Ops), 20)
	got, err = k.Shrink(s, Budget{Runs: 9})
	require.NoError(t, err)
	assert.True(t, got.Spent)
	assert.Zero(t, got.Runs)
}

// TestShrinkOfWhatPasses finds nothing.
func TestShrinkOfWhatPasses(t *testing.T) {
	k := toyKind(func(*toy) bool { return false })
	got, err := k.Shrink(k.Random(1), enough)
	require.NoError(t, err)
	assert.Equal(t, Shrunk{}, got)
}

// TestShrinkOfAPanic: a panic is a failure.
func TestShrinkOfAPanic(t *testing.T) {
	k := toyKind(func(t *toy) bool { return t.Ops[99].Root >= 0 })
	got, err := k.Shrink(k.Random(1), enough)
	require.NoError(t, err)
	assert.Equal(t, `{"Size":1}`, got.JSON)
	assert.ErrorContains(t, got.Outcome.Err, "panic: runtime error: index out of range [99] with length 0")
}

// TestShrinkOfAScenario: the smallest of a predicate on real scenarios.
func TestShrinkOfAScenario(t *testing.T) {
	k := *Multicast
	k.Run = func(s *sim.Scenario) Outcome {
		for _, o := range s.Ops {
			if o.Collective == wire.Broadcast && o.Root == 2 && o.Bytes >= 300 {
				return Outcome{Err: errors.New("as told"), Text: func() string { return "" }}
			}
		}
		return Outcome{Text: func() string { return "" }}
	}
	got, err := k.Shrink(firstFailure(t, &k), enough)
	require.NoError(t, err)
	small, err := decode[sim.Scenario]([]byte(got.JSON))
	require.NoError(t, err)
	assert.Equal(t, 3, small.Core.Size)
	require.Len(t, small.Ops, 1)
	assert.Equal(t, 300, small.Ops[0].Bytes)
	assert.Empty(t, small.Crashes)
	assert.Zero(t, small.Skew)
	t.Log(got.Runs, got.JSON)
}

// TestSmallerScenariosPass: no change makes of a good scenario one that fails by itself, so that a
// shrunk scenario fails because of the protocol.
func TestSmallerScenariosPass(t *testing.T) {
	walks := systest.Draw(8, 60)
	t.Run("multicast", func(t *testing.T) { t.Parallel(); walk(t, Multicast, walks) })
	t.Run("inc", func(t *testing.T) { t.Parallel(); walk(t, InNetwork, walks) })
}

// walk makes random scenarios smaller in random ways.
func walk[S any](t *testing.T, k *Kind[S], walks int) {
	changes := k.changes()
	ran := 0
	for seed := uint64(1); seed <= uint64(walks); seed++ {
		r := rand.New(rand.NewPCG(seed, 2))
		s := k.Random(seed)
		tree, err := treeOf(&s)
		require.NoError(t, err)
		for range 30 {
			next, ok := changes[r.IntN(len(changes))].make(tree, r.IntN(1+r.IntN(50)))
			if !ok {
				continue
			}
			s, err := fromTree[S](next)
			if err != nil || !k.Fit(&s) {
				continue
			}
			text, err := encode(&s)
			require.NoError(t, err)
			o := k.run(&s)
			require.NoError(t, o.Err, "seed %d: %s\n%s", seed, text, o.Text())
			ran++
			tree, err = treeOf(&s)
			require.NoError(t, err)
		}
	}
	t.Log(ran, "runs")
	assert.Greater(t, ran, walks)
}

func TestAtOnce(t *testing.T) {
	for want, spans := range [][]sim.Span{
		{{From: 5, To: 5}, {From: 0, To: 1}},
		{{From: 0, To: 10}, {From: 10, To: 20}, {From: 15, To: 15}},
		{{From: 0, To: 10}, {From: 9, To: 20}, {From: 12, To: 30}},
		{{From: 0, To: 10}, {From: 2, To: 20}, {From: 3, To: 30}, {From: 20, To: 40}},
	} {
		assert.Equal(t, want, atOnce(spans), "%v", spans)
	}
}

// TestNarrowScenarios: there are some among the random ones.
func TestNarrowScenarios(t *testing.T) {
	found := 0
	for seed := uint64(1); seed <= 200; seed++ {
		if s := Multicast.Random(seed); s.Calm && s.Net.Depth > 0 {
			require.True(t, isNarrow(&s), "seed %d", seed)
			found++
		}
	}
	assert.Greater(t, found, 5)
}
