package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who names the traces to read, and no file to write, keeps the first of them.
func TestMergeKeepsWhatIsThere(t *testing.T) {
	first := filepath.Join(t.TempDir(), "a.json")
	require.NoError(t, os.WriteFile(first, []byte("{}"), 0o600))
	require.ErrorContains(t, (&traceMergeCommand{Out: first, Files: []string{first}}).Run(), "exists: want a new file")
	text, err := os.ReadFile(first)
	require.NoError(t, err)
	require.Equal(t, "{}", string(text))
}
