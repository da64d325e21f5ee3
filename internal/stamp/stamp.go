// Package stamp says when, with which commit and on which machine something was measured. Every measured
// row has it, so that nobody takes figures of one machine or commit for those of another.
package stamp

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/version"
)

// Stamp is part of a row.
type Stamp struct {
	Date   string `json:"date"`   // of the measurement, in UTC: 2026-12-31
	Commit string `json:"commit"` // that the program was built from, as git describe --always --dirty; empty: unknown
	CPU    string `json:"cpu"`    // model of the first core, or, where the kernel names none, the architecture
	Kernel string `json:"kernel"` // its release
	CPUs   int    `json:"cpus"`   // that this process may run on
}

// Now returns the stamp of this program on this machine, today.
func Now() Stamp {
	s := unchanging()
	s.Date = time.Now().UTC().Format(time.DateOnly)
	return s
}

// unchanging is all but the date.
var unchanging = sync.OnceValue(func() Stamp {
	s := Stamp{Commit: version.Commit(), CPUs: runtime.NumCPU()}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // the architecture is named then
	s.CPU = model(string(cpuinfo))
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		s.Kernel = unix.ByteSliceToString(uname.Release[:])
	}
	return s
})

// model finds the model of the first core in /proc/cpuinfo.
func model(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
