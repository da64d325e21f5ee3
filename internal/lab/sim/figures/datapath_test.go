package figures

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The instructions that the figures take are the counted ones.
func TestCountedInstructions(t *testing.T) {
	text, err := os.ReadFile("../../../../benchmarks/results/receive.ndjson")
	require.NoError(t, err)
	counts := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		var row struct {
			Processor, Datapath string
			Batch               int
			Instructions        float64 `json:"per_completion"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		if row.Processor == "riscv64" && row.Batch == 64 {
			counts[row.Datapath] = row.Instructions
		}
	}
	require.Len(t, counts, len(datapaths))
	for _, d := range datapaths {
		require.InDelta(t, counts[d.ours.name], d.ours.instructions, 1e-9, d.ours.name)
	}
}
