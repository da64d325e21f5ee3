package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const finds = "PROGRAMS_FINDS"

func TestMain(m *testing.M) {
	if os.Getenv(finds) == "" {
		os.Exit(m.Run())
	}
	p, err := Find()
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(p.Mcast + " " + p.Lab)
}

// TestFind: the mcast beside this program is the one, then that of PATH; where there is none it is said how to make it.
func TestFind(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	lab := filepath.Join(folder, "mcast-lab")
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(lab, self, 0o755))
	found := func() string {
		cmd := exec.Command(lab)
		cmd.Env = []string{finds + "=1", "PATH=" + elsewhere}
		out, _ := cmd.Output() // an error is printed
		return string(out)
	}
	beside, path := filepath.Join(folder, "mcast"), filepath.Join(elsewhere, "mcast")
	require.Equal(t, "hosts of a testbed run mcast, and there is neither "+beside+" nor one in PATH: `make build` makes it", found())
	for _, mcast := range []string{path, beside} {
		require.NoError(t, os.WriteFile(mcast, nil, 0o755))
		require.Equal(t, mcast+" "+lab, found())
	}
	require.NoError(t, os.Chmod(beside, 0o644)) // no program
	require.Equal(t, path+" "+lab, found())
}
