package search

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// found is a scenario that once failed.
type found struct {
	Name     string
	Why      string // it failed
	Inc      bool   // it is one of InNetwork
	Scenario json.RawMessage
}

// TestFoundSeeds runs what the search has found so far: testdata/seeds.json,
// to which each new one is added as it was printed.
func TestFoundSeeds(t *testing.T) {
	file, err := os.Open("testdata/seeds.json")
	require.NoError(t, err)
	defer file.Close()
	d := json.NewDecoder(file)
	d.DisallowUnknownFields()
	var all []found
	require.NoError(t, d.Decode(&all))
	require.NotEmpty(t, all)
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			require.NotEmpty(t, f.Why)
			replay := Multicast.Replay
			if f.Inc {
				replay = InNetwork.Replay
			}
			o, err := replay(string(bytes.TrimSpace(f.Scenario)))
			require.NoError(t, err)
			assert.NoError(t, o.Err, "%s\n%s", f.Why, o.Text())
		})
	}
}
