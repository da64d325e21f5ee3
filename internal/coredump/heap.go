// Package coredump keeps secrets, and keys that are derived from them, out of core files.
package coredump

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// arenaSize is what Go's heap grows by: each arena is reserved as a whole, aligned to its size, and the next one lies
// above it, unless somebody else has the place (runtime/malloc.go). Stacks of goroutines lie in arenas, too.
const arenaSize = 64 << 20

// OmitHeap has the kernel leave out of core files the memory that Go has for objects and stacks by now. Nothing in
// there moves. It does not cover memory that Go maps later: code that has read a secret or made a key calls it
// afterwards. It takes microseconds, and fails only where a kernel or a sandbox lacks the call, without an error: all
// else works there.
func OmitHeap() {
	var here byte // of a goroutine's stack
	first := uintptr(unsafe.Pointer(&here)) &^ (arenaSize - 1)
	for arena := first; omit(arena); arena += arenaSize {
	}
	for arena := first - arenaSize; omit(arena); arena -= arenaSize {
	}
}

// omit leaves out an arena, and reports whether the whole arena is mapped.
func omit(arena uintptr) bool {
	_, _, e := unix.Syscall(unix.SYS_MADVISE, arena, arenaSize, unix.MADV_DONTDUMP)
	return e == 0
}
