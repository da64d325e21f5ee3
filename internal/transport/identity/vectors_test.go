package identity

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors are what another implementation derives from some secrets: see testdata/vectors.py.
//
//go:embed testdata/vectors.json
var vectors []byte

// TestVectors holds what every version that is to talk to this one must derive alike.
func TestVectors(t *testing.T) {
	var all []map[string]string
	require.NoError(t, json.Unmarshal(vectors, &all))
	require.NotEmpty(t, all)
	for _, v := range all {
		i := of(t, v["secret"])
		require.Equal(t, v["public"], hex.EncodeToString(i.public))
		name, err := i.Name()
		require.NoError(t, err)
		require.Equal(t, v["name"], name)
		salt, err := hex.DecodeString(v["salt"])
		require.NoError(t, err)
		for _, purpose := range []string{"datagrams", "encrypted datagrams"} {
			key, err := i.Derive(purpose, salt)
			require.NoError(t, err)
			require.Equal(t, v[purpose], hex.EncodeToString(key), purpose)
		}
	}
}
