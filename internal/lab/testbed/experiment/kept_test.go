package experiment

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every experiment that is ended leaves a file of its own; one that is done takes only its own away.
func TestKept(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "new")}
	run := func(line int, ended bool) string {
		k := keptOf(o, "x")
		k.add(line)
		k.add(line)
		require.NoError(t, k.close(ended))
		return k.path
	}
	lines := map[string]string{}
	for i, name := range []string{"x.partial.ndjson", "x.partial-2.ndjson", "x.partial-3.ndjson"} {
		require.Equal(t, filepath.Join(o.Dir, name), run(i, true))
		lines[name] = string(rune('0'+i)) + "\n" + string(rune('0'+i)) + "\n"
	}
	run(7, false)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Len(t, left, len(lines))
	for _, f := range left {
		text, err := os.ReadFile(filepath.Join(o.Dir, f.Name()))
		require.NoError(t, err)
		require.Equal(t, lines[f.Name()], string(text))
	}
	nothing := keptOf(o, "y")
	require.NoError(t, nothing.close(true))
}
