// Package version is the version of the whole: the command, the library and the Python package,
// which reads the same file by a link.
package version

import (
	_ "embed"
	"fmt"
	"runtime"
	"strings"
)

//go:embed VERSION
var file string

// String is the version by https://semver.org, such as "0.1.0".
func String() string { return strings.TrimSpace(file) }

// Long adds what the program was built with, and which instructions it sums with.
func Long(sums fmt.Stringer) string {
	return fmt.Sprintf("%s (%s, %s/%s, %v)", String(), runtime.Version(), runtime.GOOS, runtime.GOARCH, sums)
}
