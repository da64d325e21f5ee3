// Package stamp says when, with which commit and on which machine something was measured. Every measured
// row has it, so that nobody takes figures of one machine or commit for those of another.
package stamp

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp is part of a row.
type Stamp struct {
	Date   string `json:"date"`   // of the measurement, in UTC: 2026-12-31
	Commit string `json:"commit"` // that the program was built from, as git describe --always --dirty; empty: unknown
	CPU    string `json:"cpu"`    // model of the first core, or, where the kernel names none, the architecture
	Kernel string `json:"kernel"` // its release
	CPUs   int    `json:"cpus"`   // that this process may run on
}

// Now returns that of this program, here and now.
func Now() Stamp {
	s := unchanging()
	s.Date = time.Now().UTC().Format(time.DateOnly)
	return s
}

// unchanging is all but the date.
var unchanging = sync.OnceValue(func() Stamp {
	s := Stamp{Commit: commit, CPUs: runtime.NumCPU()}
	if info, ok := debug.ReadBuildInfo(); ok && s.Commit == "" {
		s.Commit = describe(info)
	}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // the architecture is named then
	s.CPU = model(string(cpuinfo))
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		s.Kernel = unix.ByteSliceToString(uname.Release[:])
	}
	return s
})

// commit is set by `make build`: Go itself leaves it out with -buildvcs=false, and in a work tree of git's.
var commit string

// describe spells what Go knows of a program's commit.
func describe(info *debug.BuildInfo) (commit string) {
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}

// model finds that of the first core in /proc/cpuinfo.
func model(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
