package fabrics

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// TestOneSealerAColumn: under a key, nobody counts datagrams as another does, and nobody begins anew.
func TestOneSealerAColumn(t *testing.T) {
	id, err := identity.New("correct-horse-battery-staple")
	require.NoError(t, err)
	digest, err := id.Name()
	require.NoError(t, err)
	settings := config.Default()
	settings.Secret = "correct-horse-battery-staple"
	const version = 7
	for name, hosts := range map[string]string{"flat": "abcd", "columns": "aabb", "uneven": "aaabbbcc"} {
		t.Run(name, func(t *testing.T) {
			var blobs [][]byte
			for r := range hosts {
				text, err := json.Marshal(team.Blob{
					Version: version, Rank: r, Size: len(hosts), Host: hosts[r:r+1] + "/1/", User: "0/1", Secret: digest,
					Address: fmt.Sprintf("10.0.0.%d", hosts[r]-'a'+1), Port: 7000, Key: fmt.Sprint(r + 1), Job: "1",
					Settings: settings.Agreed(),
				})
				require.NoError(t, err)
				blobs = append(blobs, text)
			}
			trailers := map[string]int{}
			var probes *seal.Sealer // rank 0's
			for r := range blobs {
				a, err := team.New(team.Self{Rank: r, Size: len(blobs), Settings: settings, Version: version}, blobs)
				require.NoError(t, err)
				var first udp.Options
				var sealed seals
				require.NoError(t, sealed.fill(a, &first, id))
				if probes == nil {
					probes = first.Probes
				}
				for range 2 {
					var o udp.Options
					require.NoError(t, sealed.fill(a, &o, id))
					for _, s := range []*seal.Sealer{o.Seals, o.Probes} {
						head := make([]byte, s.Size())
						s.Seal(0, head, nil, nil)
						other, known := trailers[string(head)]
						require.False(t, known, "rank %d seals as rank %d has", r, other)
						trailers[string(head)] = r
						if s == o.Probes {
							require.True(t, probes.Open(uint32(r), 0, head, nil), "all ranks hear probes of rank %d", r)
						}
					}
				}
			}
		})
	}
}

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
