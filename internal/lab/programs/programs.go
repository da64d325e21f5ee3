// Package programs knows where the two programs of this repository lie: hosts of a testbed run both.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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

// Find returns the path of this program, which is mcast-lab, and the path of an mcast: the one beside this program, or
// else the one in PATH.
func Find() (p Paths, err error) {
	if p.Lab, err = os.Executable(); err != nil {
		return p, err
	}
	beside := In(filepath.Dir(p.Lab)).Mcast
	if p.Mcast, err = exec.LookPath(beside); err == nil {
		return p, nil
	}
	if p.Mcast, err = exec.LookPath("mcast"); err != nil {
		return p, fmt.Errorf("hosts of a testbed run mcast, and there is neither %s nor one in PATH: `make build` makes it",
			beside)
	}
	return p, nil
}

// Lead has PATH of this process, and so of all that it starts, lead to the programs that Find returns, by their names:
// it puts their folders first, unless PATH leads there already. Where there is no mcast it does the same for this one
// alone.
func Lead() error {
	p, err := Find()
	if p.Lab == "" {
		return err
	}
	if err != nil {
		p.Mcast = ""
	}
	path := filepath.SplitList(os.Getenv("PATH"))
	for _, program := range []string{p.Mcast, p.Lab} {
		if program == "" || leads(path, program) {
			continue
		}
		path = slices.Insert(path, 0, filepath.Dir(program))
	}
	return os.Setenv("PATH", strings.Join(path, string(filepath.ListSeparator)))
}

// leads says whether the first program of that name in some folders is this one.
func leads(path []string, program string) bool {
	for _, folder := range path {
		if folder == "" { // wherever a shell is
			return false
		}
		found := filepath.Join(folder, filepath.Base(program))
		if _, err := exec.LookPath(found); err == nil {
			return found == program
		}
	}
	return false
}
