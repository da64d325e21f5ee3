package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const finds = "PROGRAMS_FINDS"

func TestMain(m *testing.M) {
	if os.Getenv(finds) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(finds) == "lead" {
		if err := Lead(); err != nil {
			panic(err)
		}
		_, _ = os.Stdout.WriteString(os.Getenv("PATH"))
		return
	}
	p, err := Find()
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(p.Mcast + " " + p.Lab)
}

// copyOf puts this program into a folder, as mcast-lab.
func copyOf(t *testing.T, folder string) string {
	t.Helper()
	lab := filepath.Join(folder, "mcast-lab")
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(lab, self, 0o755))
	return lab
}

// TestFind: Find prefers the mcast beside this program to the one in PATH; where there is none it is said how to make
// it.
func TestFind(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	lab := copyOf(t, folder)
	found := func() string {
		cmd := exec.Command(lab)
		cmd.Env = []string{finds + "=1", "PATH=" + elsewhere}
		out, _ := cmd.Output() // an error is printed
		return string(out)
	}
	beside, path := filepath.Join(folder, "mcast"), filepath.Join(elsewhere, "mcast")
	require.Equal(t,
		"hosts of a testbed run mcast, and there is neither "+beside+" nor one in PATH: `make build` makes it", found())
	for _, mcast := range []string{path, beside} {
		require.NoError(t, os.WriteFile(mcast, nil, 0o755))
		require.Equal(t, mcast+" "+lab, found())
	}
	require.NoError(t, os.Chmod(beside, 0o644)) // no program
	require.Equal(t, path+" "+lab, found())
}

// TestLead: a shell finds both programs by their names, and PATH stays as it is where it does so already.
func TestLead(t *testing.T) {
	folder, elsewhere, other := t.TempDir(), t.TempDir(), t.TempDir()
	lab := copyOf(t, folder)
	path := func(folders ...string) string {
		cmd := exec.Command(lab)
		cmd.Env = []string{finds + "=lead", "PATH=" + strings.Join(folders, ":")}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	require.Equal(t, folder, path(), "there is no mcast, and no PATH")
	require.Equal(t, folder+":"+other, path(other), "there is no mcast")
	require.Equal(t, other+":"+folder, path(other, folder))
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "mcast"), nil, 0o755))
	require.Equal(t, folder+":"+other+":"+elsewhere, path(other, elsewhere), "mcast is that of PATH")
	require.Equal(t, other+":"+elsewhere+":"+folder, path(other, elsewhere, folder),
		"it leads there, and there is none beside the program")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "mcast"), nil, 0o755))
	require.Equal(t, folder+":"+elsewhere+":"+folder, path(elsewhere, folder),
		"that of PATH is another one than that beside the program")
	require.Equal(t, folder+":"+elsewhere, path(folder, elsewhere))
	require.Equal(t, folder+"::"+folder, path("", folder), "the folder where a shell is may have any")
}
