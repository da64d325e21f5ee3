package netdev

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Memo keeps values that were read from this host's network until the kernel reports a change of
// links, addresses or routes, and for a few seconds at most. A process may have a hundred groups:
// each asks when it is joined, and once a second afterwards, and to ask the kernel takes a
// millisecond. The zero value is ready.
type Memo[K comparable, V any] struct {
	mu     sync.Mutex
	kept   map[K]kept[V]
	source *changes // nil: the process's
}

type kept[V any] struct {
	value V
	state uint64
	until time.Time
}

// memory is how long a Memo keeps what no change was reported of: not all is, such as the speed of
// some links.
const memory = 5 * time.Second

// Get returns the value kept under a key, or reads it. read says whether to keep the value: a value
// that is incomplete for want of a descriptor is not kept. Callers do not change the value.
func (m *Memo[K, V]) Get(key K, read func() (value V, keep bool)) V {
	source := m.source
	if source == nil {
		source = &network
	}
	state, known := source.state() // before it is read: what changes meanwhile makes it old
	if !known {
		value, _ := read()
		return value
	}
	m.mu.Lock()
	k, ok := m.kept[key]
	m.mu.Unlock()
	if ok && k.state == state && time.Now().Before(k.until) {
		return k.value
	}
	value, keep := read()
	if !keep {
		return value
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[K]kept[V]{}
	}
	m.kept[key] = kept[V]{value, state, time.Now().Add(memory)}
	return value
}

// changes numbers the states of a network namespace, from the reports of rtnetlink(7).
type changes struct {
	once      sync.Once
	namespace string // in which it listens

	mu    sync.Mutex
	fd    int // -1: the kernel does not let us listen
	count uint64
}

// network watches the namespace of this process: of the thread that asks first, and of all threads
// that have not left that namespace.
var network changes

// state returns the number of the present state; known says that it is of the namespace of the
// thread that asks.
func (c *changes) state() (number uint64, known bool) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return 0, false
	}
	c.once.Do(func() { c.namespace, c.fd = here, listen() })
	if c.fd < 0 || here != c.namespace {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var b [4096]byte
		_, _, err := unix.Recvfrom(c.fd, b[:], 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return c.count, true
		case errors.Is(err, unix.EINTR):
		default: // a report, or so many that there was no room for all
			c.count++
		}
	}
}

// listen opens a socket for reports.
func listen() (fd int) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return -1
	}
	const groups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE |
		unix.RTMGRP_IPV6_ROUTE
	if unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}) != nil {
		_ = unix.Close(fd)
		return -1
	}
	sys.Private(fd)
	return fd
}
