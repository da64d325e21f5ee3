package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kept is the file into which an experiment writes its measurements as they come: readings, and rows once they are
// whole. The file is removed when the experiment is done; if the experiment is ended before, the file remains. Files of
// earlier experiments stay as they are.
type kept struct {
	path string
	file *os.File // nil: nothing was measured yet
	err  error    // the first
}

func keptOf(o Options, name string) kept {
	return kept{path: filepath.Join(o.Dir, name+".partial.ndjson")}
}

// add writes a line, at once.
func (k *kept) add(v any) {
	if k.file == nil && k.err == nil {
		if k.err = os.MkdirAll(filepath.Dir(k.path), 0o755); k.err == nil {
			k.err = k.create()
		}
	}
	if k.err == nil {
		k.err = json.NewEncoder(k.file).Encode(v)
	}
}

// create makes the file, with a number in its name where an earlier experiment has left such ones.
func (k *kept) create() (err error) {
	name := strings.TrimSuffix(k.path, ".ndjson")
	for n := 2; ; n++ {
		k.file, err = os.OpenFile(k.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, os.ErrExist) {
			return err
		}
		k.path = fmt.Sprintf("%s-%d.ndjson", name, n)
	}
}

// close ends the file, which stays only if the experiment was ended.
func (k *kept) close(ended bool) error {
	if k.file == nil {
		return k.err
	}
	err := errors.Join(k.err, k.file.Close())
	if !ended {
		err = errors.Join(err, os.Remove(k.path))
	}
	return err
}

// taken is a reading as it comes.
type taken struct {
	Setting
	Command string `json:"command"`
	Reading any    `json:"reading"`
}

// EndedError says that an experiment was ended before it was done: by a signal, or as its time was over.
type EndedError struct {
	Experiment string
	Cause      error
	Path       string // the file with its measurements so far; empty: there are none
}

func (e *EndedError) Error() string {
	what := "nothing was measured"
	if e.Path != "" {
		what = "its measurements are in " + e.Path
	}
	return fmt.Sprintf("experiment %s ended before it was done: %v; %s", e.Experiment, e.Cause, what)
}

func (e *EndedError) Unwrap() error { return e.Cause }
