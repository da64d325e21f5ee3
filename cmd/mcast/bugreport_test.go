package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unpack returns the files of an archive, by their names in its folder.
func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	files := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		_, name, _ := strings.Cut(h.Name, "/")
		files[name] = string(text)
	}
}

// TestBugReport: a report has all promised files, and no secret of the environment, of a file or of a trace.
func TestBugReport(t *testing.T) {
	const secret, misspelled, foreign = `correct"horse\battery<staple>`, "another-horse-battery-staple",
		"token-of-somebody"
	folder := t.TempDir()
	held := filepath.Join(folder, "secret")
	require.NoError(t, os.WriteFile(held, []byte(secret+"\n"), 0o600))
	trace := `{"said": "` + secret + `, ` + misspelled + `, ` + foreign + `"}`
	require.NoError(t, os.WriteFile(filepath.Join(folder, "trace-host-7.json"), []byte(trace), 0o600))
	for given, vars := range map[string][]string{
		"variable": {"MCAST_SECRET=" + secret}, "file": {"MCAST_SECRET_FILE=" + held},
	} {
		archive := filepath.Join(folder, given+".tar.gz")
		vars = append(vars, "MCAST_TRACE="+folder, "MCAST_SECERT="+misspelled, "SOME_TOKEN="+foreign)
		cmd, stdout, stderr := mcast(t, vars, "bugreport", archive, "--listen", "0")
		require.NoError(t, cmd.Run(), stderr)
		require.Contains(t, stdout.String(), archive)
		files := unpack(t, archive)
		for _, name := range []string{"doctor.txt", "doctor.json", "version.json", "env.txt", "kernel.txt",
			"traces/trace-host-7.json"} {
			require.NotEmpty(t, files[name], name)
		}
		require.Contains(t, files["version.json"], `"commit":`)
		require.Equal(t, `{"said": "(hidden), (hidden), (hidden)"}`, files["traces/trace-host-7.json"])
		for name, text := range files {
			for _, hidden := range []string{secret, `correct\"horse`, "battery", misspelled, foreign} {
				require.NotContains(t, text, hidden, name)
			}
		}
		cmd, _, stderr = mcast(t, vars, "bugreport", archive)
		require.Error(t, cmd.Run())
		require.Contains(t, stderr.String(), "file exists")
	}
}

// TestBugReportHidesNoWords: a variable that only sounds like a secret leaves the files of a report readable.
func TestBugReportHidesNoWords(t *testing.T) {
	hide := hidden([]string{"TOKENIZERS_PARALLELISM=false", "KEYS=true", "MCAST_FOO=auto", "API_KEY=0123456789",
		"API_TOKEN=01234567"})
	require.Equal(t, `{"a":false,"b":true,"c":"auto","d":"(hidden)","e":"(hidden)"}`,
		string(hide([]byte(`{"a":false,"b":true,"c":"auto","d":"0123456789","e":"01234567"}`))))
}
