package trace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNotRegular is of a path that is there and no file: a directory, a device such as /dev/null, a pipe.
var ErrNotRegular = errors.New("not a regular file")

// WriteFile writes the trace to a file for this user alone, in place of one that is there. The file is whole whenever
// it is there. Anything but a regular file stays, with an error: a rename would put the trace in place of a device.
func (t *Trace) WriteFile(path string) error {
	if at, err := os.Stat(path); err == nil && !at.Mode().IsRegular() {
		return &os.PathError{Op: "replace", Path: path, Err: ErrNotRegular}
	}
	return write(path, os.Rename, t.Write)
}

// MergeFile writes what Merge does to a new file, whole whenever it is there; for a moment it is empty where the file
// system has no hard links. Where there is one already, the error is os.ErrExist.
func MergeFile(path string, from []string) error {
	if _, err := os.Lstat(path); err == nil { // before much is read
		return os.ErrExist
	}
	put := func(part, path string) error { return putNew(part, path, os.Link) }
	return write(path, put, func(w io.Writer) error { return Merge(w, from) })
}

// putNew puts a file where none is, and never in place of another, as a rename would. link is os.Link.
func putNew(part, path string, link func(from, to string) error) error {
	err := link(part, path)
	if err == nil {
		return os.Remove(part)
	}
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	// There are no hard links, as on FAT (link(2)): an empty file of ours takes the place first.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close() // nothing was written
	if err = os.Rename(part, path); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// naming has an error of the part be one of the file that was meant: nobody knows the part's name.
func naming(path string, err error) error {
	isPart := func(name string) bool {
		return strings.HasPrefix(filepath.Base(name), filepath.Base(path)+".") && strings.HasSuffix(name, partSuffix)
	}
	var of *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &of) && isPart(of.Path):
		return &os.PathError{Op: of.Op, Path: path, Err: of.Err}
	case errors.As(err, &link) && isPart(link.Old):
		return &os.PathError{Op: link.Op, Path: path, Err: link.Err}
	}
	return err
}

// partSuffix is what names of files end with that are being written.
const partSuffix = ".part"

// write has a file filled and then put where it belongs.
func write(path string, put func(part, path string) error, fill func(io.Writer) error) (err error) {
	defer func() { err = naming(path, err) }()
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
