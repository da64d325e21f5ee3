package seal

import (
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors are what another implementation makes of some datagrams: see testdata/vectors.py.
//
//go:embed testdata/vectors.json
var vectors []byte

func TestVectors(t *testing.T) {
	var all []struct {
		Key, Counter, Number, Header, Payload, Tag, Encrypted, CRC32C string
		Sender                                                        uint32
		EncryptedTag                                                  string `json:"encrypted_tag"`
	}
	require.NoError(t, json.Unmarshal(vectors, &all))
	require.NotEmpty(t, all)
	bytes := func(digits string) []byte {
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		return b
	}
	integer := func(digits string) uint64 {
		n, err := strconv.ParseUint(digits, 16, 64)
		require.NoError(t, err)
		return n
	}
	for _, v := range all {
		trailers := map[Kind]string{Tags: v.Counter + v.Tag, Encryption: v.Counter + v.EncryptedTag, Checksum: v.CRC32C}
		for _, kind := range kinds {
			from, to := New(kind, bytes(v.Key), v.Sender), New(kind, bytes(v.Key), 0)
			from.next, from.latest, to.latest = integer(v.Counter), integer(v.Number), integer(v.Number)
			want := v.Payload
			if kind == Encryption {
				want = v.Encrypted
			}
			head, sealed := sent(from, uint32(from.latest), bytes(v.Header), bytes(v.Payload))
			require.Equal(t, v.Header+trailers[kind], hex.EncodeToString(head), "%v", kind)
			require.Equal(t, want, hex.EncodeToString(sealed), "%v", kind)
			require.True(t, to.Open(v.Sender, uint32(to.latest), head, sealed), "%v", kind)
			require.Equal(t, v.Payload, hex.EncodeToString(sealed), "%v", kind)
		}
	}
}
