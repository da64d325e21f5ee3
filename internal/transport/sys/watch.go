package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watch waits for all resting pollers of the process by one epoll instance and one thread: a
// process may have a hundred pollers, and most have nothing to do for seconds. There is one watch
// while any poller that has rested is open.
type watch struct {
	epoll, event int // event ends it

	mu      sync.Mutex
	resting map[int32]func() // by number of the poller
}

// process is this process's watch.
var process struct {
	sync.Mutex
	*watch
	members int   // pollers that it knows
	last    int32 // number of a poller
}

// enter makes a poller known to the process's watch.
func (p *Poller) enter() error {
	if p.watch != nil {
		return nil
	}
	process.Lock()
	defer process.Unlock()
	w := process.watch
	if w == nil {
		var err error
		if w, err = newWatch(); err != nil {
			return err
		}
	}
	p.number = process.last + 1
	if err := w.control(unix.EPOLL_CTL_ADD, p, 0); err != nil {
		if process.watch == nil {
			w.end()
		}
		return err
	}
	process.watch, p.watch = w, w
	process.last++
	process.members++
	return nil
}

// leave has the watch forget a poller that is about to be closed.
func (p *Poller) leave() {
	p.Rouse()
	if p.watch == nil {
		return
	}
	process.Lock()
	defer process.Unlock()
	_ = p.watch.control(unix.EPOLL_CTL_DEL, p, 0) // it is there
	if process.members--; process.members == 0 {
		p.watch.end()
		process.watch = nil
	}
	p.watch = nil
}

func newWatch() (*watch, error) {
	w := &watch{event: -1, resting: map[int32]func(){}}
	var err error
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if w.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, w.event, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeTag})
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	go w.run()
	return w, nil
}

// end has run return.
func (w *watch) end() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(w.event, one[:])
}

func (w *watch) close() {
	for _, fd := range []int{w.event, w.epoll} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// run calls for each poller that has something. A poller is called for once, and has to ask again.
func (w *watch) run() {
	defer w.close()
	var events [maxEvents]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.epoll, events[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // never: all descriptors are open
		}
		for i := range max(n, 0) {
			if events[i].Fd == wakeTag {
				return
			}
			if awake := w.take(events[i].Fd); awake != nil {
				awake()
			}
		}
	}
}

// take removes the function to call for a poller and returns it.
func (w *watch) take(number int32) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	awake := w.resting[number]
	delete(w.resting, number)
	return awake
}

func (w *watch) put(number int32, awake func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting[number] = awake
}

func (w *watch) control(op int, p *Poller, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: p.number}
	if err := unix.EpollCtl(w.epoll, op, p.epoll, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// Rest has awake called when there is something that Ready would return, or is already, and reports
// whether it will be; a Wake is not heard of. Wait waits as well, but holds a thread.
func (p *Poller) Rest(awake func()) bool {
	if p.enter() != nil {
		return false // no descriptor is left for it
	}
	p.watch.put(p.number, awake)
	if p.watch.control(unix.EPOLL_CTL_MOD, p, unix.EPOLLIN|unix.EPOLLONESHOT) != nil {
		p.watch.take(p.number)
		return false
	}
	return true
}

// lookAgain is how long one waits at most that cannot be called.
const lookAgain = time.Millisecond

// RestFor is Rest for one that waits for d meanwhile. It returns for how long that may wait: for less than d where no
// descriptor is left for Rest.
func (p *Poller) RestFor(d time.Duration, awake func()) time.Duration {
	if !p.Rest(awake) {
		return min(d, lookAgain)
	}
	return d
}

// Rouse calls Rest off, if it was called. A call that is on its way may still come.
func (p *Poller) Rouse() {
	if p.watch != nil && p.watch.take(p.number) != nil {
		_ = p.watch.control(unix.EPOLL_CTL_MOD, p, unix.EPOLLONESHOT) // it is there
	}
}
