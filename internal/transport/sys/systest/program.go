package systest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

var programDir string

// Mcast builds the program mcast, once for the tests of a package, and returns its path. It lies in GOTMPDIR if that is set,
// since a small /tmp has no room for the programs of several packages. RemoveMcast removes it.
var Mcast = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp(os.Getenv("GOTMPDIR"), "mcast-test-"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "mcast")
	build := exec.Command("go", "build", "-o", path, "github.com/torch-mcast/torch-mcast/cmd/mcast")
	build.Env = append(build.Environ(), "TMPDIR="+programDir) // the linker's, which needs twice the room
	out, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, err
})

// RemoveMcast removes what Mcast has built, at the end of TestMain.
func RemoveMcast() {
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
}
