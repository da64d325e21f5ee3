package seal

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A datagram that was recorded is not taken again once its number's lower bits are in use for the next time, wherever
// both ends began to count; until then it is a duplicate, for others to know.
func TestReplayAfterAWrap(t *testing.T) {
	key := make([]byte, 32)
	for _, start := range []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 2} {
		from, to := NewNumbered(key), NewNumbered(key)
		from.Advance(start)
		to.Advance(start)
		head, payload := make([]byte, headerSize+Size), []byte("chunk")
		from.Seal(start, head, payload)
		require.True(t, to.Open(start, head, payload))
		for range 4 { // once around
			from.Advance(uint32(from.latest) + 1<<30)
			to.Advance(uint32(to.latest) + 1<<30)
		}
		require.False(t, to.Open(start, head, payload))
		again := append([]byte{}, head...)
		from.Seal(start, again, payload)
		require.NotEqual(t, head, again)
		require.True(t, to.Open(start, again, payload))
	}
}

// Ends that saw different numbers, less than 2^31 apart, understand each other; who is not believed moves nobody on.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := NewNumbered(make([]byte, 32)), NewNumbered(make([]byte, 32))
		a.latest = rapid.Uint64Range(1<<31, 1<<62).Draw(t, "a")
		b.latest = a.latest + rapid.Uint64Range(0, 1<<31-1).Draw(t, "ahead")
		number := b.latest - rapid.Uint64Range(0, 1<<31-1).Draw(t, "number")
		if int64(number-a.latest) >= -1<<31 {
			require.Equal(t, number, a.whole(uint32(number)))
		}
		require.Equal(t, number, b.whole(uint32(number)))
		was := b.latest
		head := make([]byte, headerSize+Size)
		require.False(t, b.Open(uint32(number), head, nil))
		require.Equal(t, was, b.latest)
		a.Seal(uint32(b.latest), head, nil)
		require.True(t, b.Open(uint32(was), head, nil))
	})
}
