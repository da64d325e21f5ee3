package incnet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSeeds(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	var total Result
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(seed)
		require.NoError(t, r.Err, "%s", r.String())
		total.Add(&r)
	}
	// The seeds are worth something only if all this has happened.
	assert.Positive(t, total.Lost)
	assert.Positive(t, total.Overflow)
	assert.Positive(t, total.Resent)
	assert.Positive(t, total.Direct)
	assert.Greater(t, total.Sessions, int(seeds)) //nolint:gosec // small
}

func TestSeedReplays(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := Run(seed), Run(seed)
		assert.Equal(t, a.Hash, b.Hash)
		assert.Equal(t, a.Datagrams, b.Datagrams)
	}
}
