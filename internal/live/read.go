package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bytes of a page: a hundred groups, of 64 KiB at most (TestSmallPage of internal/group)
	most = 8 << 20
	soon = 500 * time.Millisecond // after a page, in which others that are not stopped come, too
	// processes that are asked: a user may have made more sockets than this process has descriptors
	atOnce = 64
)

// Directories returns where this user may read: its own directory or, for root, those of all users.
func Directories() []string {
	if os.Geteuid() != 0 {
		return []string{Directory(os.Geteuid())}
	}
	all, _ := filepath.Glob("/tmp/mcast-*") // the pattern is right
	return all
}

// Read returns the pages of all processes that publish in some directories, and why others could not be read. Those
// that have died are none.
func Read[T any](directories []string) (pages []Process[T], errs []error) {
	return readAll[T](patience, 0, directories)
}

// ReadSoon is Read that waits no longer for others once a page came moments ago: a process that is stopped keeps
// nobody.
func ReadSoon[T any](directories []string) (pages []Process[T], errs []error) {
	return readAll[T](patience, soon, directories)
}

// socketsIn returns those of processes' pages.
func socketsIn(directories []string) (paths []string, err error) {
	for _, d := range directories {
		found, err := filepath.Glob(filepath.Join(d, "*"+suffix))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// readAll gives each process so long, and, unless that is 0, the others so long after a page.
func readAll[T any](within, after time.Duration, directories []string) (pages []Process[T], errs []error) {
	paths, err := socketsIn(directories)
	if err != nil {
		return nil, []error{err}
	}
	type outcome struct {
		at   int
		page Process[T]
		err  error
	}
	came, free := make(chan outcome, len(paths)), make(chan struct{}, atOnce)
	outcomes := make([]outcome, len(paths))
	for i, path := range paths {
		outcomes[i].err = fmt.Errorf("no page within %v of another one's", after)
		go func() {
			free <- struct{}{}
			page, err := read[T](within, path)
			<-free
			came <- outcome{i, page, err}
		}()
	}
	var enough <-chan time.Time
	for range paths {
		select {
		case o := <-came:
			outcomes[o.at] = o
			if o.err == nil && after > 0 {
				enough = time.After(after)
			}
			continue
		case <-enough:
		}
		break
	}
	for len(came) > 0 { // at the last moment
		o := <-came
		outcomes[o.at] = o
	}
	for i, o := range outcomes {
		switch {
		case o.err == nil:
			pages = append(pages, o.page)
		case !errors.Is(o.err, unix.ECONNREFUSED) && !errors.Is(o.err, os.ErrNotExist):
			errs = append(errs, fmt.Errorf("%s: %w", paths[i], o.err))
		}
	}
	return pages, errs
}

// read asks one process.
func read[T any](within time.Duration, path string) (page Process[T], err error) {
	c, err := net.DialTimeout("unix", path, within)
	if err != nil {
		return page, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return page, err
	}
	pid, err := peer(c)
	if err != nil {
		return page, err
	}
	from := &io.LimitedReader{R: c, N: most}
	err = json.NewDecoder(from).Decode(&page)
	if err != nil && from.N == 0 {
		return page, fmt.Errorf("it publishes more than %d bytes", most)
	}
	page.job = strings.TrimSuffix(path, suffix) + jobSuffix
	page.PID = pid // the kernel's number, not the claimed one: root examines that process
	return page, err
}

// peer returns the process that listens at the other end; 0 if it is in a PID namespace that is not seen from here.
func peer(c net.Conn) (pid int, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn() // it was dialed as one
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if asked != nil {
		return 0, asked
	}
	return int(cred.Pid), nil
}
