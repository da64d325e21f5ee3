package trace_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// put writes a file.
func put(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	b := []byte(text)
	if filepath.Ext(name) == ".gz" {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, err := w.Write(b)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		b = z.Bytes()
	}
	require.NoError(t, os.WriteFile(path, b, 0o600))
	return path
}

// TestMerge: moments of files with different bases are moments of one, and all else is as it was.
func TestMerge(t *testing.T) {
	torch := put(t, "torch.json.gz", `{"host_name": "a", "baseTimeNanoseconds": 7889238000000000, "traceEvents": [
		{"ph": "X", "name": "step", "pid": 7, "tid": "x", "ts": 1.5, "dur": 2.25, "args": {"External id": 1}}, {"ph": "M", "name": "process_name", "pid": 7}]}`)
	ours := put(t, "ours.json",
		`{"host_name": "a", "baseTimeNanoseconds": 15778476000000000, "traceEvents": [{"ph": "X", "name": "allgather", "ts": 2, "dur": 1}]}`)
	old := put(t, "old.json", `{"traceEvents": [{"ph": "i", "ts": 15778476000001.5}]}`)
	var b bytes.Buffer
	require.NoError(t, trace.Merge(&b, []string{torch, ours, old}))
	require.JSONEq(t,
		`{"schemaVersion": 1, "displayTimeUnit": "ms", "host_name": "a", "baseTimeNanoseconds": 15778476000000000, "traceEvents": [
		{"ph": "X", "name": "step", "pid": 7, "tid": "x", "ts": -7889237999998.5, "dur": 2.25, "args": {"External id": 1}}, {"ph": "M", "name": "process_name", "pid": 7},
		{"ph": "X", "name": "allgather", "ts": 2, "dur": 1},
		{"ph": "i", "ts": 1.5}]}`, b.String())
	require.True(t, json.Valid(b.Bytes()))
}

// TestMergeRefuses: a file that is no trace, or does not go with the others, is an error that names the file.
func TestMergeRefuses(t *testing.T) {
	a := put(t, "a.json", `{"host_name": "a", "traceEvents": []}`)
	b := put(t, "b.json", `{"host_name": "b", "traceEvents": []}`)
	var to bytes.Buffer
	require.ErrorContains(t, trace.Merge(&to, []string{a, b}), "a.json is of host a")
	require.ErrorContains(t, trace.Merge(&to, []string{put(t, "c.json", `{}`)}),
		"c.json: it is not a trace in JSON: it has no traceEvents")
	require.ErrorContains(t, trace.Merge(&to, []string{put(t, "d.json", `text`)}), "d.json: it is not a trace in JSON")
	require.ErrorContains(t, trace.Merge(&to, []string{filepath.Join(t.TempDir(), "none.json")}), "none.json")
	require.ErrorContains(t, trace.Merge(&to, []string{
		put(t, "f.json", `{"baseTimeNanoseconds": 5, "traceEvents": [{"ts": "x"}]}`),
		put(t, "g.json", `{"baseTimeNanoseconds": 6, "traceEvents": []}`),
	}), `f.json: ts "x" is not a number`)
	require.Zero(t, to.Len())
}
