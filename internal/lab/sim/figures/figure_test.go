package figures

import (
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
			for _, suffix := range []string{".ndjson", ".svg"} {
				files, err := filepath.Glob(filepath.Join(dir, f.Name+"*"+suffix))
				require.NoError(t, err)
				require.NotEmpty(t, files)
			}
		})
	}
}
