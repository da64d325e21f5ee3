package trace

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// most is how many files of traces stay in a directory that nobody else tidies.
const most = 32

// WriteTo writes the trace to the file of this process in a directory, and returns its path.
func (t *Trace) WriteTo(directory string) (path string, err error) {
	path = filepath.Join(directory, fmt.Sprintf("trace-%d.json", os.Getpid()))
	return path, t.WriteFile(path)
}

// Tidy leaves the newest traces of a directory.
func Tidy(directory string) {
	type file struct {
		path string
		at   int64
	}
	paths, _ := filepath.Glob(filepath.Join(directory, "trace-*.json")) // the pattern is right
	var files []file
	for _, p := range paths {
		if info, err := os.Lstat(p); err == nil {
			files = append(files, file{p, info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(b.at, a.at) })
	for _, f := range files[min(most, len(files)):] {
		_ = os.Remove(f.path)
	}
}
