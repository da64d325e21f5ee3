package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is how many descriptors one wait reports; others stay ready.
const maxEvents = 64

// wakeTag marks the event of the poller's own eventfd.
const wakeTag = -1

// Before it sleeps, Wait offers its core to others up to this often, for up to this long. An
// idle rank waits for ranks that share its cores, and a sleep and its wake-up cost more than a
// yield: with 4 ranks on 2 cores, a 64 MiB Allgather takes 103 ms so, and 148 ms with 4 yields.
// The time is bounded because a core that computes gives a yielding thread its turn late, and a
// waking one at once.
const (
	maxYields = 200
	maxSpin   = 300 * time.Microsecond
)

// Poller waits on many descriptors and can be woken by another goroutine. All
// methods but Wake belong to one goroutine at a time.
type Poller struct {
	epoll    int
	event    int // eventfd, edge-triggered, hence never drained
	events   [maxEvents]unix.EpollEvent
	timeout  unix.Timespec
	coarse   bool // epoll_pwait2 does not work here: whole milliseconds
	idle     bool // the last Wait was for nothing: the next one sleeps at once
	sleeping atomic.Bool
	woken    atomic.Bool
	closing  sync.Mutex // a late Wake must not write to a descriptor that is something else by now
	Syscalls atomic.Uint64

	watch  *watch // the process's, once this one has rested
	number int32  // there
}

// NewPoller returns a poller that watches nothing yet.
func NewPoller() (*Poller, error) {
	p := &Poller{epoll: -1, event: -1}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if p.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(fmt.Errorf("eventfd: %w", err), p.Close())
	}
	if err := p.Watch(p.event, wakeTag, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Watch adds a descriptor. tag, not negative, comes back with its events.
func (p *Poller) Watch(fd, tag int, events uint32) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, tag, events)
}

// Change sets what a descriptor is watched for.
func (p *Poller) Change(fd, tag int, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, tag, events)
}

// Unwatch forgets a descriptor. Closing it is not enough where a forked child holds it as well:
// its events would go on.
func (p *Poller) Unwatch(fd int) error {
	return p.control(unix.EPOLL_CTL_DEL, fd, 0, 0)
}

func (p *Poller) control(op, fd, tag int, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(tag)}
	if err := unix.EpollCtl(p.epoll, op, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Ready returns the events that are pending now. The slice is valid until the
// next call; its Fd fields are tags.
func (p *Poller) Ready() []unix.EpollEvent {
	p.Syscalls.Add(1)
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events)), maxEvents, 0,
		0, 0)
	return p.found(n, e)
}

// Wait returns pending events, waiting up to d for the first of them. It
// returns none when d has passed, Wake was called, or for no reason.
func (p *Poller) Wait(d time.Duration) []unix.EpollEvent {
	p.sleeping.Store(true)
	defer p.awake()
	if p.woken.Load() || d <= 0 {
		return p.Ready()
	}
	if !p.idle {
		if ready := p.spin(d); len(ready) > 0 || p.woken.Load() {
			return ready
		}
	}
	ready := p.block(d)
	p.idle = len(ready) == 0 && !p.woken.Load()
	return ready
}

// spin yields the core until there is something, or it is time to sleep.
func (p *Poller) spin(d time.Duration) (ready []unix.EpollEvent) {
	Yield(d, func() bool {
		ready = p.Ready()
		return len(ready) > 0 || p.woken.Load()
	})
	return ready
}

// Yield yields the core until something is ready, and reports true, or until it is time to sleep: after d at most.
func Yield(d time.Duration, ready func() bool) bool {
	d = min(d, maxSpin)
	start := time.Now()
	for range maxYields {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		if ready() {
			return true
		}
		if time.Since(start) > d {
			break
		}
	}
	return false
}

// block waits in the kernel, with the resolution that the kernel has.
func (p *Poller) block(d time.Duration) []unix.EpollEvent {
	p.Syscalls.Add(1)
	if !p.coarse {
		p.timeout = unix.NsecToTimespec(int64(d))
		n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events)), maxEvents,
			uintptr(unsafe.Pointer(&p.timeout)), 0, 0)
		if e == 0 || e == unix.EINTR {
			return p.found(n, e)
		}
		p.coarse = true // Linux before 5.11 has no such call; some sandboxes answer EPERM to it.
	}
	ms := min((d+time.Millisecond-1)/time.Millisecond, time.Hour/time.Millisecond)
	n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events)), maxEvents,
		uintptr(ms), 0, 0)
	return p.found(n, e)
}

// awake ends a Wait. A Wake that comes before it has ended this Wait.
func (p *Poller) awake() {
	p.sleeping.Store(false)
	p.woken.Store(false)
}

// found drops the eventfd from what a wait returned.
func (p *Poller) found(n uintptr, e syscall.Errno) []unix.EpollEvent {
	ready := p.events[:count(n, e)]
	for i := range ready {
		if ready[i].Fd == wakeTag {
			ready[i] = ready[len(ready)-1]
			return ready[:len(ready)-1]
		}
	}
	return ready
}

// Wake ends a Wait, now or the next one. It may be called from any goroutine,
// even after Close.
func (p *Poller) Wake() {
	if p.woken.Swap(true) || !p.sleeping.Load() {
		return
	}
	p.closing.Lock()
	defer p.closing.Unlock()
	if p.event >= 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(p.event, one[:])
	}
}

// Close releases the poller's own descriptors.
func (p *Poller) Close() error {
	p.leave()
	p.closing.Lock()
	defer p.closing.Unlock()
	var errs []error
	for _, fd := range []int{p.event, p.epoll} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	p.event, p.epoll = -1, -1
	return errors.Join(errs...)
}
