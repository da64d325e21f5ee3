package figures

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// Every figure can be made, and has numbers, plots and claims.
func TestFigures(t *testing.T) {
	for _, f := range All {
		if slow := f.Name == "gleam" || f.Name == "schedule" || f.Name == "appendix-b"; slow && !systest.Long() {
			continue // seconds each, and minutes under the race detector
		}
		t.Run(f.Name, func(t *testing.T) {
			dir := t.TempDir()
			if keep := os.Getenv("FIGURES"); keep != "" {
				dir = keep
			}
			claims, err := f.Make(Options{Dir: dir, Quick: true, Seed: 1})
			require.NoError(t, err)
			require.NotEmpty(t, claims)
			for _, suffix := range []string{".ndjson", ".png", ".svg"} {
				files, err := filepath.Glob(filepath.Join(dir, f.Name+"*"+suffix))
				require.NoError(t, err)
				require.NotEmpty(t, files)
			}
		})
	}
}

// docs/REPRODUCTION.md shows the committed results: every plot, and every claim word for word.
func TestDocument(t *testing.T) {
	const results = "../../../../benchmarks/results/sim"
	text, err := os.ReadFile("../../../../docs/REPRODUCTION.md")
	require.NoError(t, err)
	has := func(what string) { require.True(t, bytes.Contains(text, []byte(what)), "the document lacks %q", what) }
	for _, f := range All {
		rows, err := os.ReadFile(filepath.Join(results, f.Name+".ndjson"))
		require.NoError(t, err)
		claims := 0
		for _, row := range bytes.Split(bytes.TrimSpace(rows), []byte("\n")) {
			var c Claim
			require.NoError(t, json.Unmarshal(row, &c))
			if c.Figure == "" {
				continue // a measurement
			}
			claims++
			has(c.Markdown())
		}
		require.Positive(t, claims, f.Name)
		plots, err := filepath.Glob(filepath.Join(results, f.Name+"*.png"))
		require.NoError(t, err)
		require.NotEmpty(t, plots, f.Name)
		for _, plot := range plots {
			has("(../benchmarks/results/sim/" + filepath.Base(plot) + ")")
		}
	}
}
