package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/cli/clitest"
)

// completionScript returns a shell's script in a folder where mcast is this program.
func completionScript(t *testing.T, shell string) (folder string) {
	t.Helper()
	cmd, stdout, stderr := mcast(t, nil, "completion", shell)
	require.NoError(t, cmd.Run(), stderr)
	folder = t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(folder, "mcast")))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "script"), stdout.Bytes(), 0o600))
	return folder
}

// TestBashCompletes: bash, with the script, completes commands, flags and values as a user types them.
func TestBashCompletes(t *testing.T) {
	folder := completionScript(t, "bash")
	for words, want := range map[string]string{
		"be":                        "bench",
		"trace me":                  "merge",
		"nccl ":                     "check topology",
		"bench all":                 "allgather allreduce",
		"bench allgather --fab":     "--fabric",
		"nccl check --nvswitch ":    "no unknown yes",
		"nccl check --nvswitch = y": "yes", // as bash cuts --nvswitch=y
		"completion ":               "bash fish zsh",
		"doctor --spaw":             "", // --spawned is hidden, and of another command
		"bench allgather --spaw":    "",
		"advise -- mcast ben":       "",
	} {
		list := strings.Split("mcast "+words, " ")
		cmd := exec.Command("bash", "-c", `. "$0/script"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mcast; echo "${COMPREPLY[*]}"`)
		cmd.Args = append(append(cmd.Args, folder), list...)
		cmd.Env = append(os.Environ(), clitest.Be+"=1", "PATH="+folder+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, want+"\n", string(out), words)
	}
}

// TestScriptsOfOtherShells: each shell that is here can read its script.
func TestScriptsOfOtherShells(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			folder := completionScript(t, shell)
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("there is no %s here: its script was printed, and not read by it", shell)
			}
			out, err := exec.Command(shell, "-n", filepath.Join(folder, "script")).CombinedOutput()
			require.NoError(t, err, string(out))
			require.Empty(t, string(out))
		})
	}
}
