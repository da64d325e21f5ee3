package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCallLayout pins what a Compare has of a call to its bytes.
func TestCallLayout(t *testing.T) {
	m := Control{Kind: Compare, Collective: Broadcast, Root: 0x0102, Digest: 0x0304, Seq: 0x05060708, Bytes: 0x0910}
	m.SetCall(&Call{Collective: Allgather, Root: 0x1112, Number: 0x13141516, Bytes: 0x1718191a1b1c})
	b := make([]byte, ControlSize)
	m.Put(b)
	assert.Equal(t, []byte{
		8, 0x72, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x13, 0x14, 0x15, 0x16, 0x11, 0x12, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0, 0,
		0, 0, 0, 0, 9, 0x10,
	}, b)
}

// TestCallsDiffer: calls that differ are not equal, in nothing but the root have different digests, and the
// same have the same.
func TestCallsDiffer(t *testing.T) {
	call := Call{Collective: Reduce, Op: 5, Root: 3, Number: 7, Bytes: 64, Factor: math.NaN()}
	same := call
	assert.True(t, call.Equal(&same))
	assert.Equal(t, call.Digest(), same.Digest())
	for i, change := range []func(*Call){
		func(c *Call) { c.Collective = Broadcast }, func(c *Call) { c.Op++ }, func(c *Call) { c.Root++ },
		func(c *Call) { c.Number++ }, func(c *Call) { c.Bytes++ }, func(c *Call) { c.Factor = 1 },
	} {
		other := call
		change(&other)
		assert.False(t, call.Equal(&other), i)
		assert.NotEqual(t, call.Digest(), other.Digest(), i)
	}
	seen := map[uint16]bool{}
	for root := range uint16(1 << 15) {
		call.Root = root
		seen[call.Digest()] = true
	}
	assert.Len(t, seen, 1<<15, "roots")
	seen = map[uint16]bool{}
	for n := range uint32(1000) {
		call.Number = n
		seen[call.Digest()] = true
	}
	assert.Greater(t, len(seen), 980, "numbers")
	none := Call{}
	assert.True(t, none.IsNone())
	assert.Zero(t, none.Digest())
}
