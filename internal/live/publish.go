// Package live shows watchers, such as `mcast top` and `mcast metrics`, what the groups of a process do. A process
// listens on a socket of its own in a directory of its user. A client that connects gets a page, as JSON, and then the
// connection ends: there is nothing to ask. A process that nobody asks does nothing for it.
package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// Process is the page of a process; T is the part about one group.
type Process[T any] struct {
	Version string        `json:"version"`
	Commit  string        `json:"commit"` // that it was built from; empty: unknown
	PID     int           `json:"pid"`
	Run     string        `json:"run"`   // of torchrun or Slurm; may be empty
	At      time.Duration `json:"at_ns"` // when the page was written, by the process's clock
	Groups  []T           `json:"groups"`

	job string // the socket that answers for other ranks; known of a page that was read
}

// suffix is what names of sockets end with.
const suffix = ".sock"

// patience is how long a reader may take, and a process to answer.
var patience = 2 * time.Second

// Directory is where processes of a user have their sockets unless another place is set. It is in /tmp:
// XDG_RUNTIME_DIR and /dev/shm are emptied when the user logs out, and jobs go on.
func Directory(uid int) string { return filepath.Join("/tmp", "mcast-"+strconv.Itoa(uid)) }

// publisher is what a process publishes in a directory.
type publisher struct {
	listener, jobListener net.Listener
	path                  string // without the endings of its two sockets
	pages                 []*entry
}

// entry is the published page of a group.
type entry struct {
	page func() any
	job  *Job // nil: nobody may ask for other ranks
}

var (
	mu         sync.Mutex
	publishers = map[string]*publisher{} // by directory
	started    = time.Now()
)

// Publish adds a page to those of this process until it is withdrawn. If directory is empty, the user's own is taken.
// page and job are called when somebody asks, from any goroutine; job may be nil.
func Publish(directory string, page func() any, job *Job) (withdraw func(), err error) {
	mu.Lock()
	defer mu.Unlock()
	p := publishers[directory]
	if p == nil {
		if p, err = open(directory); err != nil {
			return nil, err
		}
		publishers[directory] = p
		go serve(p.listener, 1, patience, p.show)
		go serve(p.jobListener, jobsAtOnce, jobPatience, p.answer)
	}
	own := &entry{page, job}
	p.pages = append(p.pages, own)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		p.pages = slices.DeleteFunc(p.pages, func(e *entry) bool { return e == own })
		if len(p.pages) == 0 && publishers[directory] == p {
			delete(publishers, directory)
			p.close()
		}
	}, nil
}

// open listens in a directory. The socket gets its name once it listens, so that nobody takes it for one of the dead.
func open(directory string) (*publisher, error) {
	directory, err := Make(directory)
	if err != nil {
		return nil, err
	}
	sweep(directory)
	path := filepath.Join(directory, fmt.Sprintf("%d-%08x", os.Getpid(), rand.Uint32()))
	p := &publisher{path: path}
	if p.jobListener, err = listen(path, jobSuffix); err != nil {
		return nil, err
	}
	if p.listener, err = listen(path, suffix); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func listen(path, suffix string) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	sys.PrivateConn(l)
	if err = os.Chmod(path, 0o600); err == nil {
		err = os.Rename(path, path+suffix)
	}
	if err != nil {
		_ = os.Remove(path)
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// close ends both sockets.
func (p *publisher) close() {
	for suffix, l := range map[string]net.Listener{suffix: p.listener, jobSuffix: p.jobListener} {
		if l != nil {
			_ = os.Remove(p.path + suffix)
			_ = l.Close()
		}
	}
}

// Make makes a directory of this user, if it is not there, and returns it; empty stands for Directory.
func Make(directory string) (string, error) {
	if directory == "" {
		directory = Directory(os.Geteuid())
		return directory, own(directory)
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", err
	}
	return directory, trusted(directory)
}

// trusted finds that nobody but this user and root takes files out of a directory, or puts others in their place.
func trusted(directory string) error {
	info, err := os.Stat(directory)
	if err != nil {
		return err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	open := info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0
	if !ok || open || int(s.Uid) != os.Geteuid() && s.Uid != 0 {
		return fmt.Errorf("%s (%v) is not safe from other users: it must be of this user or root, and others may write "+
			"there only with the sticky bit (mode 1777)",
			directory, info.Mode())
	}
	return nil
}

// own makes the directory of the user, or finds that it is that: anybody may make one of this name in /tmp.
func own(directory string) error {
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(directory)
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(s.Uid) != os.Geteuid() ||
		info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a directory of this user alone (mode 0700); remove it, or set MCAST_METRICS and "+
			"MCAST_TRACE to another", directory)
	}
	return nil
}

// sweep removes the sockets of processes that have died without doing so.
func sweep(directory string) {
	paths, _ := filepath.Glob(filepath.Join(directory, "*"+suffix)) // the pattern is right
	jobs, _ := filepath.Glob(filepath.Join(directory, "*"+jobSuffix))
	paths = append(paths, jobs...)
	for _, path := range paths {
		pid, _, _ := strings.Cut(filepath.Base(path), "-")
		if n, err := strconv.Atoi(pid); err != nil || n <= 0 || !errors.Is(unix.Kill(n, 0), unix.ESRCH) {
			continue
		}
		// It may live in another PID namespace.
		if c, err := net.DialTimeout("unix", path, patience); err == nil {
			_ = c.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// serve has a function answer connections, so many at once, until the listener is closed.
func serve(l net.Listener, atOnce int, within time.Duration, answer func(net.Conn)) {
	free := make(chan struct{}, atOnce)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(patience) // out of descriptors, perhaps for now
			continue
		}
		free <- struct{}{}
		go func() {
			defer func() {
				_ = c.Close()
				<-free
			}()
			if held, ok := c.(syscall.Conn); ok {
				sys.PrivateConn(held)
			}
			_ = c.SetDeadline(time.Now().Add(within))
			answer(c)
		}()
	}
}

// show writes the page to a process that asks.
func (p *publisher) show(c net.Conn) {
	_ = json.NewEncoder(c).Encode(p.process()) // the other end may be gone
}

// process returns the page.
func (p *publisher) process() *Process[any] {
	groups := []any{}
	mu.Lock() // until it has them, none is withdrawn
	for _, e := range p.pages {
		groups = append(groups, e.page())
	}
	mu.Unlock()
	return Of(groups...)
}

// Of is a page of this process.
func Of[T any](groups ...T) *Process[T] {
	return &Process[T]{
		Version: version.String(), Commit: version.Commit(), PID: os.Getpid(), Run: run(), At: time.Since(started),
		Groups: append([]T{}, groups...),
	}
}

// run returns the name of the run that launchers give processes.
func run() string {
	for _, name := range []string{"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"} {
		if id := os.Getenv(name); id != "" && id != "none" {
			return id
		}
	}
	return ""
}
