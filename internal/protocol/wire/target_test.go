package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTarget(t *testing.T) {
	var all Target
	_, one := all.Root()
	assert.False(t, one)
	assert.True(t, all.Includes(0))
	assert.True(t, all.Includes(7))
	assert.Equal(t, "reduce-scatter", all.String())
	for _, rank := range []int{0, 7, 1<<15 - 1} {
		to := ToRank(rank)
		root, one := to.Root()
		assert.True(t, one)
		assert.Equal(t, rank, root)
		assert.True(t, to.Includes(rank))
		assert.False(t, to.Includes(rank+1))
	}
	assert.Equal(t, "reduce to rank 3", ToRank(3).String())
}
