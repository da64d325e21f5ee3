package group

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
)

// TestKeyVector derives the same key of a group as another implementation, in
// internal/transport/identity/testdata/vectors.json. The salt there is the job, the first rank and the ranks' key
// parts, in this order.
func TestKeyVector(t *testing.T) {
	id, err := identity.New("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	require.NoError(t, err)
	a := &team.Plan{Job: 0x0001020304050607, Keys: []uint64{0x0c0d0e0f10111213, 0x1415161718191a1b}}
	ours, err := newSealer(a, seal.Tags, id, "datagrams", 0x08090a0b, 7)
	require.NoError(t, err)
	key, err := hex.DecodeString("79210db2c767a26a3b633843675190e7e91516558d38c5c9a41c5c4b3b4ef67c")
	require.NoError(t, err)
	got, want := make([]byte, ours.Size()), make([]byte, ours.Size())
	ours.Seal(0, got, []byte("chunk"), nil)
	seal.New(seal.Tags, key, 7).Seal(0, want, []byte("chunk"), nil)
	require.Equal(t, want, got)
}
