// Package version is the version of the whole: the command, the library and the Python package,
// which reads the same file by a link.
package version

import (
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

//go:embed VERSION
var file string

// String is the version by https://semver.org, such as "0.1.0".
func String() string { return strings.TrimSpace(file) }

// Long adds commit, compiler and system that the program was built with, and which instructions it sums with.
func Long(sums fmt.Stringer) string {
	commit := Commit()
	if commit != "" {
		commit += ", "
	}
	return fmt.Sprintf("%s (%s%s, %s/%s, %v)", String(), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, sums)
}

// commit is set by `make build`: Go itself leaves it out with -buildvcs=false, and in a work tree of git's.
var commit string

// Commit is what the program was built from, as git describe --always --dirty; empty: unknown.
var Commit = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" {
		return describe(info)
	}
	return commit
})

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
