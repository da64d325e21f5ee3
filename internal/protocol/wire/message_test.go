package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessage(t *testing.T) {
	m := Message{
		Kind: MessageOffer, Of: Gather, Follows: true, Number: 0x01020304, Tag: 1 << 60, Bytes: 1 << 40, Address: 1 << 50,
	}
	b := m.Append(nil)
	require.Len(t, b, MessageSize)
	var got Message
	require.NoError(t, got.Get(b))
	require.Equal(t, m, got)
	require.ErrorIs(t, got.Get(b[1:]), ErrShort)
	for at, bad := range map[int]byte{1: 0, 2: byte(exchangeEnd), 3: 2} {
		changed := append([]byte{}, b...)
		changed[at] = bad
		require.ErrorIs(t, got.Get(changed), ErrField, "byte %d", at)
	}
	b[0]++
	require.ErrorIs(t, got.Get(b), ErrVersion)
	require.Equal(t, []string{"send", "all-to-all", "gather", "scatter", "unknown"},
		[]string{SendReceive.String(), AllToAll.String(), Gather.String(), Scatter.String(), exchangeEnd.String()})
}
