package trace

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	most = 32        // files of traces that stay in a directory that nobody else tidies
	left = time.Hour // after which a file that is not whole is one that a killed process has left
)

// Path returns the file of this process in a directory: trace-HOST-PID.json, or trace-HOST-NAMESPACE-PID.json in a PID
// namespace, such as a container's, since containers of one host may share the directory.
func Path(directory string) string {
	host, _ := os.Hostname() // a host without a name has the empty one
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return filepath.Join(directory, name(host, namespace, os.Getpid()))
}

// ofMachine is the PID namespace that a machine starts with (PROC_PID_INIT_INO of Linux, include/linux/proc_ns.h).
const ofMachine = "4026531836"

// name returns the name of a process's file. namespace is what /proc says: pid:[NUMBER]; empty where it is not known.
func name(host, namespace string, pid int) string {
	parts := []string{"trace", plain(host)}
	if number := strings.TrimSuffix(strings.TrimPrefix(namespace, "pid:["), "]"); number != ofMachine && number != "" {
		parts = append(parts, plain(number))
	}
	return strings.Join(append(parts, strconv.Itoa(pid)), "-") + ".json"
}

// plain returns a text as a part of a file's name: of at most 64 bytes, which Linux allows names of hosts, all of them
// letters, digits, dots, hyphens or underscores.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, text[:min(64, len(text))])
}

// WriteTo writes the trace to the file of this process in a directory, and returns its path.
func (t *Trace) WriteTo(directory string) (path string, err error) {
	sweep(directory)
	path = Path(directory)
	return path, t.WriteFile(path)
}

// sweep removes what processes of this user have left that were killed while they wrote.
func sweep(directory string) {
	for path, info := range files(directory, "trace-*.json.*"+partSuffix) {
		s, ok := info.Sys().(*syscall.Stat_t)
		if ok && int(s.Uid) == os.Geteuid() && info.Mode().IsRegular() && time.Since(info.ModTime()) > left {
			_ = os.Remove(path)
		}
	}
}

// Tidy leaves the newest traces of a directory.
func Tidy(directory string) {
	type file struct {
		path string
		at   time.Time
	}
	var all []file
	for path, info := range files(directory, "trace-*.json") {
		all = append(all, file{path, info.ModTime()})
	}
	slices.SortFunc(all, func(a, b file) int { return b.at.Compare(a.at) })
	for _, f := range all[min(most, len(all)):] {
		_ = os.Remove(f.path)
	}
}

// files returns the files of a directory with names that match a pattern, by path. Links are not followed.
func files(directory, pattern string) map[string]fs.FileInfo {
	entries, _ := os.ReadDir(directory) // of what cannot be read, nothing is removed
	all := map[string]fs.FileInfo{}
	for _, e := range entries {
		if matches, err := filepath.Match(pattern, e.Name()); err != nil || !matches {
			continue
		}
		if info, err := e.Info(); err == nil {
			all[filepath.Join(directory, e.Name())] = info
		}
	}
	return all
}
