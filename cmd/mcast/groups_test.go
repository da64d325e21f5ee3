package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bench"
)

func TestGroups(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		cmd, stdout, stderr := mcast(t, nil, "bench", "groups", "--fabric", fabric, "--groups", "1,3", "--ranks", "2",
			"--idle", "20ms", "--json")
		require.NoError(t, cmd.Run(), stderr)
		d := json.NewDecoder(bytes.NewReader(stdout.Bytes()))
		for _, n := range []int{1, 3} {
			var c bench.Census
			require.NoError(t, d.Decode(&c))
			require.Equal(t, n, c.Groups)
			require.Equal(t, fabric, c.Fabric)
			require.Equal(t, 2, c.Ranks)
			for name, v := range map[string]float64{
				"threads": float64(c.Threads), "descriptors": float64(c.Descriptors), "goroutines": float64(c.Goroutines),
				"memory": c.ResidentMiB, "first": c.FirstMS, "small": c.SmallUS,
			} {
				require.Positive(t, v, name)
			}
			for name, v := range map[string]float64{
				"later": c.LaterMS, "rested": c.RestedUS, "beside": c.BesideUS, "parts": c.PartsShare,
			} {
				require.Equal(t, n > 1, v > 0, name)
			}
		}
		require.False(t, d.More())
	}
}
