package seal

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A datagram that was recorded is not taken again once its number's lower bits are in use for the next time, wherever
// both ends began to count; until then it is a duplicate, for others to know.
func TestReplayAfterAWrap(t *testing.T) {
	for _, kind := range kinds[:2] {
		for _, start := range []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 2} {
			from, to := New(kind, make([]byte, KeySize), 1), New(kind, make([]byte, KeySize), 2)
			from.Advance(start)
			to.Advance(start)
			head, sealed := sent(from, start, make([]byte, headerSize), []byte("chunk"))
			open := func() bool {
				again := append(make([]byte, 0, len(sealed)+Spare), sealed...)
				return to.Open(1, start, head, again)
			}
			require.True(t, open())
			require.True(t, open())
			for range 4 { // once around
				from.Advance(uint32(from.latest) + 1<<30)
				to.Advance(uint32(to.latest) + 1<<30)
			}
			require.False(t, open())
			head, sealed = sent(from, start, make([]byte, headerSize), []byte("chunk"))
			require.True(t, open())
		}
	}
}

// TestReplayWindow holds its edges: a number may be 2^31 behind the latest, or 2^31-1 before it.
func TestReplayWindow(t *testing.T) {
	const latest = 5<<32 + 7
	for number, within := range map[uint64]bool{
		latest: true, latest - 1: true, latest - 1<<31: true, latest - 1<<31 - 1: false,
		latest + 1: true, latest + 1<<31 - 1: true, latest + 1<<31: false,
	} {
		from, to := New(Tags, make([]byte, KeySize), 1), New(Tags, make([]byte, KeySize), 2)
		from.latest, to.latest = number, latest
		head, sealed := sent(from, uint32(number), make([]byte, headerSize), []byte("chunk"))
		require.Equal(t, within, to.Open(1, uint32(number), head, sealed), "%x", number)
		if within {
			require.Equal(t, max(number, latest), to.latest, "%x", number)
		} else {
			require.EqualValues(t, latest, to.latest, "%x", number)
		}
	}
}

// Ends that saw different numbers, less than 2^31 apart, understand each other; who is not believed moves nobody on.
func TestWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(Tags, make([]byte, KeySize), 1), New(Tags, make([]byte, KeySize), 2)
		a.latest = rapid.Uint64Range(1<<31, 1<<62).Draw(t, "a")
		b.latest = a.latest + rapid.Uint64Range(0, 1<<31-1).Draw(t, "ahead")
		number := b.latest - rapid.Uint64Range(0, 1<<31-1).Draw(t, "number")
		if int64(number-a.latest) >= -1<<31 {
			require.Equal(t, number, a.whole(uint32(number)))
		}
		require.Equal(t, number, b.whole(uint32(number)))
		was := b.latest
		require.False(t, b.Open(1, uint32(number), make([]byte, headerSize+MaxSize), nil))
		require.Equal(t, was, b.latest)
		head, sealed := sent(a, uint32(b.latest), make([]byte, headerSize), nil)
		require.True(t, b.Open(1, uint32(was), head, sealed))
	})
}
