package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completionScript returns a shell's script in a folder where a program, by its name, is the one that is tested.
func completionScript(t *testing.T, program, shell string) (folder string) {
	t.Helper()
	cmd, stdout, stderr := Command(t, nil, "completion", shell)
	require.NoError(t, cmd.Run(), stderr)
	folder = t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(folder, program)))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "script"), stdout.Bytes(), 0o600))
	return folder
}

// RequireCompletions requires that bash, with the script of a program, completes what a user has typed behind its name.
func RequireCompletions(t *testing.T, program string, all map[string]string) {
	t.Helper()
	folder := completionScript(t, program, "bash")
	for words, want := range all {
		cmd := exec.Command("bash", "-c",
			`. "$0/script"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_$1"; echo "${COMPREPLY[*]}"`, folder, program)
		cmd.Args = append(cmd.Args, strings.Split(words, " ")...)
		cmd.Env = append(os.Environ(), Be+"=1", "PATH="+folder+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, want+"\n", string(out), words)
	}
}

// RequireScripts requires that each shell that is here can read its script of a program.
func RequireScripts(t *testing.T, program string) {
	t.Helper()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			folder := completionScript(t, program, shell)
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("there is no %s here: its script was printed, and not read by it", shell)
			}
			out, err := exec.Command(shell, "-n", filepath.Join(folder, "script")).CombinedOutput()
			require.NoError(t, err, string(out))
			require.Empty(t, string(out))
		})
	}
}
