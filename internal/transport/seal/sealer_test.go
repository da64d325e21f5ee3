package seal

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const headerSize = 32

// TestSealsHold changes one bit of a sealed datagram anywhere, or takes another key.
func TestSealsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key")
		head := append(rapid.SliceOfN(rapid.Byte(), headerSize, headerSize).Draw(t, "head"), make([]byte, Size)...)
		payload := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "payload")
		New(key).Seal(head, payload)
		opener := New(key)
		require.True(t, opener.Open(head, payload))

		all := append(append([]byte{}, head...), payload...)
		bit := rapid.IntRange(0, 8*len(all)-1).Draw(t, "bit")
		all[bit/8] ^= 1 << (bit % 8)
		require.False(t, opener.Open(all[:len(head)], all[len(head):]))
		require.False(t, opener.Open(head[:len(head)-1], payload))
		require.False(t, opener.Open(head[:Size-1], payload))

		key[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1
		require.False(t, New(key).Open(head, payload))
		require.True(t, opener.Open(head, payload))
	})
}

func TestSealersDoNotAllocate(t *testing.T) {
	s := New(make([]byte, 32))
	head, payload := make([]byte, headerSize+Size), make([]byte, 1440)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Seal(head, payload)
		if !s.Open(head, payload) {
			panic("not its own seal")
		}
	}))
}

func BenchmarkSeal(b *testing.B) {
	for _, size := range []int{1440, 65472} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := New(make([]byte, 32))
			head, payload := make([]byte, headerSize+Size), make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				s.Seal(head, payload)
			}
		})
	}
}
