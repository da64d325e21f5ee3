package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTraceMerge: the file is whole or not there.
func TestTraceMerge(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.json"), filepath.Join(dir, "out.json")
	require.NoError(t, os.WriteFile(in, []byte(`{"traceEvents": [{"ph": "M"}]}`), 0o600))
	require.NoError(t, (&traceMergeCommand{Out: out, Files: []string{in, in}}).Run())
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	require.JSONEq(t, `{"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 0, "traceEvents": [{"ph": "M"}, {"ph": "M"}]}`, string(b))

	bad := filepath.Join(dir, "bad.json")
	require.Error(t, (&traceMergeCommand{Out: bad, Files: []string{dir}}).Run())
	left, err := filepath.Glob(bad + "*")
	require.NoError(t, err)
	require.Empty(t, left)
}
