package systest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// apartEnv tells a process that it has a network of its own.
const apartEnv = "MCAST_TEST_APART"

// Apart reports whether this process has a network of its own, with a lo that is up, for a test
// that changes routes or interfaces. Where it has not, the test runs again in a child that has, and
// has nothing more to do here. It skips the test without root.
func Apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(apartEnv) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", `ip link set lo up && exec "$0" "$@"`, os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), apartEnv+"=1")
	child.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "it ran there")
	return false
}
