// Package teamtest makes plans for tests.
package teamtest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// Plan is what a rank concludes of hosts that have so many ranks each, one host after the other.
func Plan(t testing.TB, rank int, each ...int) *team.Plan {
	t.Helper()
	size := 0
	for _, k := range each {
		size += k
	}
	settings := config.Default()
	var blobs [][]byte
	for h, k := range each {
		for range k {
			b, err := json.Marshal(team.Blob{
				Version: 1, Rank: len(blobs), Size: size, Host: fmt.Sprintf("boot-%d/1/", h), User: "0/1",
				Address: fmt.Sprintf("10.%d.%d.1", h/256, h%256), Port: 7000, Key: "1", Job: "1", Settings: settings.Agreed(),
			})
			require.NoError(t, err)
			blobs = append(blobs, b)
		}
	}
	a, err := team.New(team.Self{Rank: rank, Size: size, Settings: settings, Version: 1}, blobs)
	require.NoError(t, err)
	return a
}
