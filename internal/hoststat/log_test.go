package hoststat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLog: the file is found that a process writes to, or the one that starts it.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rank0.log")
	f, err := os.Create(path) // for reading as well
	require.NoError(t, err)
	for _, program := range []string{
		`echo $$; exec cat`,
		`sh -c 'echo $$; exec cat' 2>&1 | cat; true`, // its output goes to cat, and not to the file
	} {
		cmd := exec.Command("sh", "-c", program)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = f
		require.NoError(t, cmd.Start())
		var pid int
		_, err = fmt.Fscan(out, &pid)
		require.NoError(t, err)
		l := OpenLog(pid)
		require.NotNil(t, l)
		require.Equal(t, path, l.Name)
		l.Close()
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	}
	require.Nil(t, OpenLog(1<<30))
	(*Log)(nil).Close()

	for text, want := range map[string]string{
		"":                                      "",
		"\n\n":                                  "",
		"one":                                   "one",
		"one\ntwo\n\n":                          "two",
		strings.Repeat("x", 9000) + "\nlast \n": "last",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		l := &Log{path, f}
		require.Equal(t, want, l.LastLine())
	}
}
