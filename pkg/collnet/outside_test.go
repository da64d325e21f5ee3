package collnet_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestAnotherModule builds testdata/outside in a module of its own, which has this one by a replace
// directive and nothing but what the module cache holds, and runs it as two processes.
func TestAnotherModule(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	program := buildOutside(t)
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			require.Equal(t, [2]string{
				"rank 0 of 2: weights [100 101], gradient [0]\n",
				"rank 1 of 2: weights [100 101], gradient [1]\n",
			}, runOutside(t, program, "-fabric", fabric))
		})
		t.Run(fabric+"/dies", func(t *testing.T) {
			out := runOutside(t, program, "-fabric", fabric, "-dies", "1")
			require.Equal(t, [2]string{"rank 0: rank 1 is lost\n", ""}, out)
		})
	}
}

func buildOutside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	checkout, err := filepath.Abs("../..")
	require.NoError(t, err)
	for from, to := range map[string]string{"testdata/outside/main.go": "main.go", "../../go.sum": "go.sum"} {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, to), b, 0o600))
	}
	// It requires what this module does: `go mod tidy`, which finds out, would need a network.
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	requirements, ok := bytes.CutPrefix(mod, []byte("module "+module+"\n"))
	require.True(t, ok)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), fmt.Appendf(nil, `module example.com/outside
%[3]s
require %[1]s v0.0.0

replace %[1]s => %[2]s
`, module, checkout, requirements), 0o600))
	for _, verb := range [][]string{{"vet", "."}, {"build", "-o", "outside", "."}} {
		c := exec.Command("go", verb...)
		c.Dir = dir
		c.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "GOFLAGS=")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "go %v\n%s", verb, out)
	}
	return filepath.Join(dir, "outside")
}

// runOutside runs two ranks and returns what each writes to its standard output.
func runOutside(t *testing.T, program string, args ...string) (written [2]string) {
	t.Helper()
	addr := systest.ReservePort(t).String()
	var ranks [2]*exec.Cmd
	var out, log [2]bytes.Buffer
	for r := range ranks {
		c := exec.CommandContext(systest.Context(t), program,
			append([]string{"-addr", addr, "-rank", fmt.Sprint(r), "-size", "2"}, args...)...)
		c.Stdout, c.Stderr = &out[r], &log[r]
		require.NoError(t, c.Start())
		ranks[r] = c
	}
	for r, c := range ranks {
		err := c.Wait()
		written[r] = out[r].String()
		t.Logf("rank %d: %v\n%s", r, err, &log[r])
	}
	return written
}
