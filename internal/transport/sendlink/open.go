package sendlink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// linkKey names a link: an interface of a network namespace.
type linkKey struct {
	namespace uint64 // inode
	index     int    // of the interface
}

// page is memory that others see.
type page struct {
	words *Words
	users int    // in this process
	path  string // "": of this process alone
	fd    int
	mem   []byte
	why   error
}

// pages are those in use by this process.
var pages struct {
	sync.Mutex
	at map[linkKey]*page
}

// Shared is a Link of a host.
type Shared struct {
	*Link
	at   linkKey
	ifi  net.Interface
	once sync.Once
	err  error
}

// Folder is where pages are: of memory, and with room for everybody.
const Folder = "/dev/shm"

// Open returns the sending link of an interface, which this process shares with others of the same
// user. Where that cannot be had it is this process's alone, and the error says why; the Link works.
func Open(ifi *net.Interface) (*Shared, error) {
	at := linkKey{index: ifi.Index}
	var st unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &st) == nil {
		at.namespace = st.Ino
	}
	pages.Lock()
	defer pages.Unlock()
	p := pages.at[at]
	if p == nil {
		prefix := fmt.Sprintf("%s/torch-mcast-link-%d-", Folder, os.Geteuid())
		sweep(prefix)
		p = openPage(fmt.Sprintf("%s%d-%d", prefix, at.namespace, at.index))
		if pages.at == nil {
			pages.at = map[linkKey]*page{}
		}
		pages.at[at] = p
	}
	p.users++
	return &Shared{Link: New(p.words, monotonic()), at: at, ifi: *ifi}, p.why
}

// Has reports whether the interface has an address.
func (s *Shared) Has(local netip.Addr) bool {
	addrs, err := s.ifi.Addrs()
	return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == local.Unmap().WithZone("")
	})
}

// Close gives the link back. The last user to do so removes the shared page.
func (s *Shared) Close() error {
	s.once.Do(func() {
		pages.Lock()
		defer pages.Unlock()
		p := pages.at[s.at]
		if p.users--; p.users == 0 {
			delete(pages.at, s.at)
			s.err = p.close()
		}
	})
	return s.err
}

// monotonic returns CLOCK_MONOTONIC, which all processes of a host share, read as package time does.
func monotonic() func() time.Duration {
	start := time.Now()
	var at unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &at) != nil {
		return func() time.Duration { return time.Since(start) } // no Linux is without
	}
	base := time.Duration(at.Nano())
	return func() time.Duration { return base + time.Since(start) }
}

// openPage maps the page of a path, or one of this process alone.
func openPage(path string) *page {
	for range 100 {
		p, err := attach(path)
		if errors.Is(err, errAgain) {
			time.Sleep(time.Millisecond) // somebody removes it right now
			continue
		}
		if err != nil {
			return &page{words: new(Words), fd: -1, why: fmt.Errorf("%s: %w", path, err)}
		}
		return p
	}
	return &page{words: new(Words), fd: -1, why: fmt.Errorf("%s: it is locked", path)}
}

var errAgain = errors.New("it is being removed")

// attach opens the file of a page, or makes it. Each process that has it open holds a shared lock,
// so that the last one can remove it.
func attach(path string) (_ *page, err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errAgain
	} else if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	var st, now unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if unix.Lstat(path, &now) != nil || now.Ino != st.Ino || now.Dev != st.Dev {
		return nil, errAgain
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return nil,
			fmt.Errorf("it is not a file of user %d alone (mode %o, of user %d): remove it", os.Geteuid(), st.Mode, st.Uid)
	}
	size := os.Getpagesize()
	// Memory that is not there would show at the first touch, as SIGBUS.
	if err := unix.Fallocate(fd, 0, 0, int64(size)); err != nil {
		return nil, fmt.Errorf("reserve %d bytes: %w", size, err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return &page{words: (*Words)(unsafe.Pointer(unsafe.SliceData(mem))), path: path, fd: fd, mem: mem}, nil
}

// sweep removes pages that processes left which were killed: namespaces come and go.
func sweep(prefix string) {
	left, _ := filepath.Glob(prefix + "*") // the pattern is well-formed
	for _, path := range left {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_ = (&page{path: path, fd: fd}).close()
	}
}

// close removes the page if nobody else has it open. A process that opens it at the same time sees
// that.
func (p *page) close() error {
	if p.path == "" {
		return nil
	}
	if unix.Flock(p.fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = unix.Unlink(p.path) // else the next one does
	}
	var err error
	if p.mem != nil {
		err = unix.Munmap(p.mem)
	}
	return errors.Join(err, unix.Close(p.fd))
}
