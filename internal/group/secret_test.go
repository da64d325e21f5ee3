package group

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

const secret, otherSecret = "correct-horse-battery-staple", "a-secret-of-somebody-else"

func withSecret(s *config.Settings) { s.Fabric, s.Secret = "udp", secret }

func withEncryption(s *config.Settings) { s.Fabric, s.Secret, s.Encrypt = "udp", secret, true }

func withChecksum(s *config.Settings) { s.Fabric, s.Checksum = "udp", "crc32c" }

// sealed are the ways in which datagrams are sealed.
var sealed = map[string]func(*config.Settings){
	"tags": withSecret, "encryption": withEncryption, "checksum": withChecksum,
}

func TestGroupWithSecret(t *testing.T) {
	for name, how := range sealed {
		t.Run(name, func(t *testing.T) { computesRight(t, how) })
	}
}

// TestRanksThatDoNotAllEncrypt cannot join.
func TestRanksThatDoNotAllEncrypt(t *testing.T) {
	zero, blobs := openAll(t, 2, withEncryption)
	one, theirs := openAll(t, 2, withSecret)
	blobs[1] = theirs[1]
	_, err := zero[0].Join(t.Context(), blobs)
	var mismatch *team.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.ErrorContains(t, err, "rank 0 has MCAST_ENCRYPT=1, rank 1 MCAST_ENCRYPT=0")
	for _, e := range []*Endpoint{zero[1], one[0], one[1]} {
		e.Close()
	}
}

// computesRight has a group with such settings compute.
func computesRight(t *testing.T, how func(*config.Settings)) {
	const p, n = 3, 100_000
	g := world(t, p, how)
	require.Equal(t, fabrics.Multicast, g[1].Info().Allgather, "probes have counted")
	each(t, p, func(r int) error {
		mine, all, sums := make([]byte, n), make([]byte, p*n), make([]byte, n)
		fill(mine, r)
		want := make([]byte, p*n)
		for o := range p {
			fill(want[o*n:][:n], o)
		}
		if err := g[r].Allgather(mine, all); err != nil {
			return err
		}
		require.Equal(t, want, all)
		if err := g[r].ReduceScatter(all, sums, reduce.U8, reduce.Sum, 1); err != nil { // over streams
			return err
		}
		for i, b := range sums {
			require.Equal(t, byte(p)*want[r*n+i], b)
		}
		return nil
	})
}

func TestRanksOfDifferentSecrets(t *testing.T) {
	for want, others := range map[string]string{"no MCAST_SECRET": "", "the MCAST_SECRET with the digest ": otherSecret} {
		zero, blobs := openAll(t, 2, withSecret)
		one, theirs := openAll(t, 2, func(s *config.Settings) { s.Fabric, s.Secret = "udp", others })
		blobs[1] = theirs[1]
		_, err := zero[0].Join(t.Context(), blobs)
		var mismatch *team.MismatchError
		require.ErrorAs(t, err, &mismatch)
		require.Equal(t, [2]int{0, 1}, mismatch.Between.Ranks)
		require.Contains(t, mismatch.Between.What[1], want)
		require.NotContains(t, err.Error(), secret)
		for _, e := range []*Endpoint{zero[1], one[0], one[1]} {
			e.Close()
		}
	}
}

// TestBlobsOfAnEarlierJob: keys come from what every rank has drawn, so a rank that is given its own blob of before, by
// a store that keeps them, would use a key again.
func TestBlobsOfAnEarlierJob(t *testing.T) {
	settings := config.Default()
	settings.Secret = secret
	open := func() *Endpoint {
		e, err := Open(Options{Rank: 1, Size: 2, Settings: settings})
		require.NoError(t, err)
		return e
	}
	before, zero := open(), open()
	zero.Close()
	defer before.Close()
	e := open()
	blobs := [][]byte{bytes.Replace(e.Blob(), []byte(`"r":1`), []byte(`"r":0`), 1), before.Blob()}
	_, err := e.Join(t.Context(), blobs)
	require.ErrorContains(t, err, "blob 1 is of another endpoint than this rank's")
}
