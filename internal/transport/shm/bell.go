package shm

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0 // FUTEX_WAIT, between processes
	futexWake = 1 // FUTEX_WAKE
)

// The reasons for which a rank sleeps. A bell rings only for these.
const (
	forData uint32 = 1 << iota
	forRoom
)

// How long an idle rank hesitates before it sleeps. Looking again costs some
// tens of nanoseconds and pays only if the peer runs at the same time. Yielding
// costs about half a microsecond, and gives the core to the peer that has to
// make the data. But it also hands a whole time slice to anything else that
// computes, from which only a futex calls a rank back early: with two busy loops
// beside 4 ranks on 2 cores, a 16 KiB Allgather took 15 us (median) when yielding
// for 20 us at most, and 90 to 490 us for 100 us.
const (
	pollsAlone   = 200 // ranks fit the cores
	pollsCrowded = 4   // they do not
	yieldFor     = 20 * time.Microsecond
)

// doorbell is a line of the region on which one agent sleeps and which the others
// ring. The order is Dekker's: a writer writes the data, then reads asleep; the
// sleeper writes asleep, then reads the data. Go's atomics are sequentially
// consistent, so at least one of them sees the other.
type doorbell struct {
	word   *atomic.Uint32 // changes with every ring
	asleep *atomic.Uint32 // what its owner waits for; 0: awake
}

func newDoorbell(mem []byte, at int) doorbell {
	return doorbell{word: word32(mem, at), asleep: word32(mem, at+8)}
}

// ring wakes the owner if it sleeps for the given reason, and returns the number
// of system calls that took. If several ring, one makes the call.
func (b doorbell) ring(reason uint32) uint64 {
	a := b.asleep.Load()
	if a&reason == 0 || !b.asleep.CompareAndSwap(a, 0) {
		return 0
	}
	b.wake()
	return 1
}

func (b doorbell) wake() {
	b.word.Add(1)
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(b.word)), futexWake, 1, 0, 0, 0)
}

// sleeper is an agent that waits on its own bell.
type sleeper struct {
	doorbell
	woken atomic.Bool // by Wake, from this process
	polls int
}

func (s *sleeper) init(b doorbell, size int) {
	s.doorbell, s.polls = b, pollsCrowded
	if size <= runtime.NumCPU() {
		s.polls = pollsAlone
	}
}

// pollable tells whether there is something to do.
type pollable interface{ ready() bool }

// sleep waits until p is ready, or wakeUp was called, or d has passed, and
// returns the number of system calls that took.
func (s *sleeper) sleep(d time.Duration, reason uint32, p pollable) (calls uint64) {
	for range s.polls {
		if s.wokenUp() || p.ready() {
			return calls
		}
	}
	start := time.Now()
	for time.Since(start) < min(d, yieldFor) {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		calls++
		if s.wokenUp() || p.ready() {
			return calls
		}
	}
	for {
		// The word is read first: a ring after that makes the kernel refuse to wait.
		w := s.word.Load()
		s.asleep.Store(reason)
		left := d - time.Since(start)
		if s.wokenUp() || p.ready() || left <= 0 {
			break
		}
		t := unix.NsecToTimespec(left.Nanoseconds())
		_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(s.word)), futexWait, uintptr(w),
			uintptr(unsafe.Pointer(&t)), 0, 0)
		calls++
		if e != 0 && !errors.Is(e, unix.EAGAIN) && !errors.Is(e, unix.EINTR) && !errors.Is(e, unix.ETIMEDOUT) {
			break
		}
	}
	s.asleep.Store(0)
	return calls
}

// wakeUp ends a sleep, now or the next one.
func (s *sleeper) wakeUp() {
	s.woken.Store(true)
	if s.asleep.Load() != 0 {
		s.wake()
	}
}

func (s *sleeper) wokenUp() bool { return s.woken.Load() && s.woken.Swap(false) }

// word32 and word64 view a counter in the region; the layout aligns them.
func word32(mem []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[at : at+4][0]))
}

func word64(mem []byte, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[at : at+8][0]))
}
