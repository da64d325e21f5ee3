package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stateRoot holds a directory for each testbed, and a lock.
const stateRoot = "/run/mcast-testbed"

func stateDir(name string) string { return filepath.Join(stateRoot, name) }

// saved is what a testbed's file says.
type saved struct {
	Spec  Spec `json:"spec"`
	Ready bool `json:"ready"` // false: being built, or what an interruption left
}

func save(s saved) error {
	dir := stateDir(s.Spec.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil { // nothing in it is secret
		return err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	next := filepath.Join(dir, "testbed.json.new")
	if err := os.WriteFile(next, append(text, '\n'), 0o644); err != nil { // nothing in it is secret
		return err
	}
	return os.Rename(next, filepath.Join(dir, "testbed.json"))
}

// load returns what was saved of a testbed. What cannot be read counts as
// nothing, for down and up to clean away.
func load(name string) (s saved, exists bool) {
	text, err := os.ReadFile(filepath.Join(stateDir(name), "testbed.json"))
	if err != nil || json.Unmarshal(text, &s) != nil || s.Spec.Name != name || s.Spec.Check() != nil {
		return saved{}, false
	}
	return s, true
}

// List returns the names of all testbeds of this machine, also of half-made ones.
func List() ([]string, error) {
	names := map[string]bool{}
	dirs, err := os.ReadDir(stateRoot)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, d := range dirs {
		if d.IsDir() {
			names[d.Name()] = true
		}
	}
	files, err := os.ReadDir(namespaceRoot)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		rest, is := strings.CutPrefix(f.Name(), namespacePrefix)
		if i := strings.LastIndexByte(rest, '-'); is && i > 0 && owns(rest[:i], f.Name()) {
			names[rest[:i]] = true
		}
	}
	var sorted []string
	for n := range names {
		sorted = append(sorted, n)
	}
	slices.Sort(sorted)
	return sorted, nil
}

// lock keeps other commands from a testbed until unlock, which forgets the lock.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	path := filepath.Join(stateRoot, name+".lock")
	for {
		if err := os.MkdirAll(stateRoot, 0o755); err != nil { // nothing in it is secret
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			continue // the last holder of the lock has just removed the directory
		}
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && current(f, path) {
			return func() {
				_ = os.Remove(path)      // before others may have it: who waits opens the next
				_ = os.Remove(stateRoot) // if it is empty
				_ = f.Close()
			}, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("testbed %s: another command is still at it: %w", name, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// current says whether a path still leads to an open file.
func current(f *os.File, path string) bool {
	a, err := f.Stat()
	b, err2 := os.Stat(path)
	return err == nil && err2 == nil && os.SameFile(a, b)
}
