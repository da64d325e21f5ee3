package world

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFoundSeeds runs the scenarios that once failed.
func TestFoundSeeds(t *testing.T) {
	text, err := os.ReadFile("testdata/seeds.json")
	require.NoError(t, err)
	var all []struct {
		Name, Why string
		Scenario  json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &all))
	require.NotEmpty(t, all)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			o, err := Groups(t).Replay(string(s.Scenario))
			require.NoError(t, err)
			require.NoError(t, o.Err, "%s: %s", s.Why, o.Text())
		})
	}
}
