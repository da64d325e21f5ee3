package systest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// aloneEnv tells a process that it runs one test and no other.
const aloneEnv = "MCAST_TEST_ALONE"

// Alone reports whether this process runs this test and no other, for a test that counts or limits
// what the process has, such as descriptors or goroutines: what other tests left behind may end at
// any moment. Where others run as well, the test runs again in a child, and has nothing more to do
// here.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) != "" {
		openPoller(t)
		return true
	}
	again(t, exec.CommandContext(t.Context(), os.Args[0], args(t)...))
	return false
}

// Apart is Alone with a network of its own, with a lo that is up, for a test that changes routes or
// interfaces. It skips the test as NewNamespace does.
func Apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) != "" {
		return true
	}
	needRoot(t)
	child := exec.CommandContext(t.Context(), "sh",
		append([]string{"-c", `ip link set lo up && exec "$0" "$@"`, os.Args[0]}, args(t)...)...)
	child.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	again(t, child)
	return false
}

// openPoller has Go's runtime open its poller now, for which it has two descriptors from its first
// connection or timer on.
func openPoller(t *testing.T) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
}

func args(t *testing.T) []string { return []string{"-test.v", "-test.run=^" + t.Name() + "$"} }

// again runs a test in a child.
func again(t *testing.T, child *exec.Cmd) {
	t.Helper()
	child.Env = append(os.Environ(), aloneEnv+"=1")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "it ran there")
}
