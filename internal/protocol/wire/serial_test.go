package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNumbersWrap(t *testing.T) {
	for _, c := range []struct{ a, b uint32 }{{0, 1}, {7, 1 << 30}, {math.MaxUint32, 0}, {math.MaxUint32 - 5, 5},
		{1 << 31, 1<<31 + 1}} {
		assert.True(t, Before(c.a, c.b), "%+v", c)
		assert.False(t, Before(c.b, c.a), "%+v", c)
		assert.Equal(t, c.b, Later(c.a, c.b))
		assert.Equal(t, c.b, Later(c.b, c.a))
	}
	assert.False(t, Before(3, 3))
}
