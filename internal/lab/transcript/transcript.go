// Package transcript has tests of pure state machines read like a conversation: commands, line by line, and the effects
// of each.
package transcript

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write what happened into the transcripts in testdata")

// Test runs each script of testdata as a test of its own and compares the effects with the ones in the file. A line
// that starts with "> " is a command, one with "#" a comment; the lines from a command to the next one are its effects.
// begin starts a script and returns do, which carries out a command; effects are written to out.
func Test(t *testing.T, begin func(t *testing.T, out *strings.Builder) (do func(command string))) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			var out strings.Builder
			replay(string(want), &out, begin(t, &out))
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o600))
				return
			}
			require.Equal(t, string(want), out.String(),
				"run go test -run Transcripts -rewrite for this package, and read the difference")
		})
	}
}

func replay(script string, out *strings.Builder, do func(command string)) {
	for _, line := range strings.Split(script, "\n") {
		if strings.HasPrefix(line, "#") {
			fmt.Fprintln(out, line)
		}
		if command, ok := strings.CutPrefix(line, "> "); ok {
			fmt.Fprintln(out, line)
			do(command)
		}
	}
}
