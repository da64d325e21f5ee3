package shm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// A rank may read the memory of another, so that large messages are copied once, where the kernel lets processes of
// one user do so: not with kernel.yama.ptrace_scope of 1 or more, unless one is the other's parent. Each rank tells
// its process number, and where a word lies that nobody can guess: who finds that word there has the right process.

// nameBytes is the length of a name: pid u64, address u64, word u64, little-endian.
const nameBytes = 24

// own is this process's word; it stays where it is.
var own = new(uint64)

func init() {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand
	*own = binary.LittleEndian.Uint64(b[:])
}

// name tells others of this process.
func (w *Region) name() {
	b := w.mem[w.lay.places().names+w.rank*line:][:nameBytes]
	binary.LittleEndian.PutUint64(b[8:], uint64(uintptr(unsafe.Pointer(own))))
	binary.LittleEndian.PutUint64(b[16:], *own)
	word64(w.mem, w.lay.places().names+w.rank*line).Store(uint64(os.Getpid())) // last: it is there then
}

// Withdraw implements fabric.Puller. A read that has begun before finds afterwards that the name is gone.
func (s *Streams) Withdraw() {
	word64(s.win.mem, s.win.lay.places().names+s.win.rank*line).Store(withdrawn)
}

// withdrawn stands for the process number of a rank that lets nobody read its memory any more.
const withdrawn = 1 << 63

var errOtherProcess = errors.New("shm: the process number of another rank stands for another process here")

// Pulls implements fabric.Puller. Whether the kernel allows it, the first Pull shows.
func (s *Streams) Pulls(int) bool { return true }

// Pull implements fabric.Puller.
func (s *Streams) Pull(from int, address uintptr, to []byte) error {
	at := s.win.lay.places().names + from*line
	name := word64(s.win.mem, at)
	pid := name.Load()
	switch {
	case pid == withdrawn:
		return fabric.ErrWithdrawn
	case pid == 0 || pid > 1<<30:
		return errOtherProcess
	}
	b := s.win.mem[at:][:nameBytes]
	known, word := uintptr(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[16:])
	err := readFrom(int(pid), known, word, address, to)
	if name.Load() != pid {
		return fabric.ErrWithdrawn
	}
	if err == nil {
		s.tally.received(0, uint64(len(to)), 0, 1)
	}
	return err
}

// readFrom fills a buffer with memory of another process, if the process has a word at a known place.
func readFrom(pid int, known uintptr, word uint64, address uintptr, to []byte) error {
	for len(to) > 0 {
		var found [8]byte
		n, err := unix.ProcessVMReadv(pid,
			[]unix.Iovec{{Base: &found[0], Len: uint64(len(found))}, {Base: &to[0], Len: uint64(len(to))}},
			[]unix.RemoteIovec{{Base: known, Len: len(found)}, {Base: address, Len: len(to)}}, 0)
		runtime.KeepAlive(to)
		switch {
		case err != nil:
			return fmt.Errorf("shm: read memory of process %d: %w", pid, err)
		case n < len(found) || binary.LittleEndian.Uint64(found[:]) != word:
			return errOtherProcess
		case n == len(found):
			return fmt.Errorf("shm: read memory of process %d: nothing is there", pid)
		}
		n -= len(found)
		to, address = to[n:], address+uintptr(n)
	}
	return nil
}
