package examine

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/prometheus/procfs"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// Host examines this host. The facts also list the things that it cannot see.
func Host(ctx context.Context, o Options) doctor.Facts {
	e := &examination{Options: o, root: os.DirFS("/")}
	if o.Root != "" {
		e.root = overlay{os.DirFS(o.Root), e.root}
	}
	e.Host, _ = os.Hostname() // a host without a name has the empty one
	var err error
	if e.proc, err = procfs.NewDefaultFS(); err == nil {
		e.self, err = e.proc.Self()
	}
	if err != nil {
		e.unseen("settings of the kernel and limits of the process", err.Error(), "mount /proc")
	}
	e.variables()
	if o.Brief {
		e.choose()
		return e.Facts
	}
	e.kernel()
	e.syscalls()
	e.links()
	e.choose()
	e.routes()
	e.sockets()
	e.igmp(ctx)
	e.firewall()
	e.resources()
	e.devices()
	e.nccl(ctx)
	e.tests()
	return e.Facts
}

// overlay has the files of one file system before those of another.
type overlay struct{ first, then fs.FS }

// Open implements fs.FS.
func (o overlay) Open(name string) (fs.File, error) {
	f, err := o.first.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return o.then.Open(name)
	}
	return f, err
}

// ReadFile implements fs.ReadFileFS: files of /proc tell no size, and some all at the first read or
// nothing.
func (o overlay) ReadFile(name string) ([]byte, error) {
	b, err := fs.ReadFile(o.first, name)
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ReadFile(o.then, name)
	}
	return b, err
}
