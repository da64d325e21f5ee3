// Package programs knows where the two programs of this repository lie: hosts of a testbed run both.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Paths are where they lie.
type Paths struct {
	Mcast string // mcast: bench, switch, doctor
	Lab   string // mcast-lab: testbed, ring
}

// In returns those of a folder, as `make build` leaves them.
func In(folder string) Paths {
	return Paths{filepath.Join(folder, "mcast"), filepath.Join(folder, "mcast-lab")}
}

// Find returns this program, which is mcast-lab, and the mcast beside it, or else that of PATH.
func Find() (p Paths, err error) {
	if p.Lab, err = os.Executable(); err != nil {
		return p, err
	}
	beside := In(filepath.Dir(p.Lab)).Mcast
	if p.Mcast, err = exec.LookPath(beside); err == nil {
		return p, nil
	}
	if p.Mcast, err = exec.LookPath("mcast"); err != nil {
		return p, fmt.Errorf("hosts of a testbed run mcast, and there is neither %s nor one in PATH: `make build` makes it", beside)
	}
	return p, nil
}
