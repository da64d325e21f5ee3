package systest

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
)

var programDir string

// Programs builds the programs mcast and mcast-lab, once for the tests of a package, and returns their folder. It lies
// in GOTMPDIR if that is set, since a small /tmp has no room for the programs of several packages. RemovePrograms
// removes it.
var Programs = sync.OnceValues(func() (folder string, err error) {
	if programDir, err = os.MkdirTemp(os.Getenv("GOTMPDIR"), "mcast-test-"); err != nil {
		return "", err
	}
	const commands = "github.com/torch-mcast/torch-mcast/cmd/"
	build := exec.Command("go", "build", "-o", programDir, commands+"mcast", commands+"mcast-lab")
	build.Env = append(build.Environ(), "TMPDIR="+programDir) // the linker's, which needs twice the room
	out, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w: %s", err, out)
	}
	return programDir, err
})

// RemovePrograms removes what Programs has built, at the end of TestMain.
func RemovePrograms() {
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
}
