package trace

import (
	"io"
	"os"
	"path/filepath"
)

// WriteFile writes the trace to a file for this user alone, in place of one that is there. The file is whole whenever
// it is there.
func (t *Trace) WriteFile(path string) error { return write(path, os.Rename, t.Write) }

// MergeFile writes what Merge does to a new file, whole whenever it is there. Where there is one already, the error is
// os.ErrExist.
func MergeFile(path string, from []string) error {
	if _, err := os.Lstat(path); err == nil { // before much is read
		return os.ErrExist
	}
	return write(path, func(part, path string) error {
		if err := os.Link(part, path); err != nil { // never in place of another, as a rename would be
			return err
		}
		return os.Remove(part)
	}, func(w io.Writer) error { return Merge(w, from) })
}

// partSuffix is what names of files end with that are being written.
const partSuffix = ".part"

// write has a file filled and then put where it belongs.
func write(path string, put func(part, path string) error, fill func(io.Writer) error) (err error) {
	// A name that nobody knows before: where others may write, it is no link that one of them has left.
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+partSuffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = fill(f); err != nil {
		_ = f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return put(f.Name(), path)
}
