package search

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestSoakDependsOnSeedsAlone: with any number of processors.
func TestSoakDependsOnSeedsAlone(t *testing.T) {
	t.Run("multicast", func(t *testing.T) { sameOnAll(t, Multicast) })
	t.Run("inc", func(t *testing.T) { sameOnAll(t, InNetwork) })
}

func sameOnAll[S any](t *testing.T, k *Kind[S]) {
	limits := Limits{First: 1, Operations: systest.Draw(300, 3000)}
	a, failed, err := k.Soak(limits, nil)
	require.NoError(t, err)
	require.Nil(t, failed)
	before := runtime.GOMAXPROCS(1)
	b, failed, err := k.Soak(limits, nil)
	runtime.GOMAXPROCS(before)
	require.NoError(t, err)
	require.Nil(t, failed)
	a.Elapsed, b.Elapsed = 0, 0
	assert.Equal(t, a, b)
	assert.GreaterOrEqual(t, a.Ops, limits.Operations)
	limits.First++
	c, _, err := k.Soak(limits, nil)
	require.NoError(t, err)
	assert.NotEqual(t, a.Hash, c.Hash)
}

// TestSoakEndsAtItsLimits in seeds, operations and time.
func TestSoakEndsAtItsLimits(t *testing.T) {
	k := toyKind(func(*toy) bool { return false })
	seen := uint64(0)
	got, failed, err := k.Soak(Limits{First: 5, Seeds: 7}, func(t *Tally, _ *Outcome) { seen = t.Seeds })
	require.NoError(t, err)
	assert.Nil(t, failed)
	assert.EqualValues(t, 7, got.Seeds)
	assert.EqualValues(t, 7, seen)
	got, _, err = k.Soak(Limits{First: 5, Seeds: 1000, Operations: 300}, nil)
	require.NoError(t, err)
	assert.Less(t, got.Seeds, uint64(100))
	assert.GreaterOrEqual(t, got.Ops, 300)
	got, _, err = k.Soak(Limits{First: 5, Time: 50 * time.Millisecond}, nil) // it would go on for ever
	require.NoError(t, err)
	assert.Positive(t, got.Seeds)
}

// TestSoakNamesTheFirstThatFails, shrinks it and says how to run both again.
func TestSoakNamesTheFirstThatFails(t *testing.T) {
	k := toyKind(func(t *toy) bool { return t.Size > 90 })
	k.Flags = " --toys"
	first := uint64(1)
	for k.seed(first).Err == nil {
		first++
	}
	for range 3 {
		got, failed, err := k.Soak(Limits{First: 1, Shrink: enough}, nil)
		require.NoError(t, err)
		require.NotNil(t, failed)
		assert.Equal(t, first, failed.Seed)
		assert.Equal(t, first, got.Seeds)
		assert.Equal(t, `{"Size":91}`, failed.Shrunk.JSON)
		for _, part := range []string{"as told", " --toys --first ", " --seeds 1 --verbose",
			`mcast-lab sim soak --toys --replay '{"Size":91}'`} {
			assert.Contains(t, failed.String(), part)
		}
	}
}

// TestReplay runs a written scenario, and says why a text is no scenario.
func TestReplay(t *testing.T) {
	k := toyKind(func(t *toy) bool { return t.Size > 90 })
	o, err := k.Replay(`{"Size":91}`)
	require.NoError(t, err)
	assert.Error(t, o.Err)
	o, err = k.Replay(`{"Size":90}`)
	require.NoError(t, err)
	assert.NoError(t, o.Err)
	for text, want := range map[string]string{
		`{"Size":1,"Hue":3}`:              `unknown field "Hue"`,
		`{"Size":1`:                       "unexpected EOF",
		`{"Size":1}{}`:                    "more than one JSON value",
		`{}`:                              "that can be run",
		`{"Size":2,"Ops":[{"Root":2}]}`:   `the nearest is {"Ops":[{"Root":1}],"Size":2}`,
		`{"Size":2,"Seed":"` + "x" + `"}`: "cannot unmarshal string",
		strings.Repeat("[", 3) + `]`:      "",
	} {
		_, err := k.Replay(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// TestReplayOfASeed: the JSON of a random scenario says everything about it.
func TestReplayOfASeed(t *testing.T) {
	t.Run("multicast", func(t *testing.T) { sameFromJSON(t, Multicast) })
	t.Run("inc", func(t *testing.T) { sameFromJSON(t, InNetwork) })
}

func sameFromJSON[S any](t *testing.T, k *Kind[S]) {
	for seed := uint64(1); seed <= 30; seed++ {
		s := k.Random(seed)
		text, err := encode(&s)
		require.NoError(t, err)
		back, err := decode[S](text)
		require.NoError(t, err)
		a, b := k.run(&s), k.run(&back)
		require.Equal(t, a.Hash, b.Hash, "seed %d", seed)
		require.Equal(t, a.Ops, b.Ops, "seed %d", seed)
		require.True(t, k.Fit(&s), "seed %d: %s", seed, text)
		after, err := encode(&s)
		require.NoError(t, err)
		require.Equal(t, string(text), string(after), "seed %d: a random scenario is one that can be run", seed)
	}
}
