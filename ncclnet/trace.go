package main

/*
#include "mcast.h"
#include "usr2.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

//export goTrace
func goTrace(path *C.char, e *C.char, n C.size_t) C.int {
	err := func() (err error) {
		defer guard(&err)
		if path == nil || *path == 0 {
			return argument("mcast_trace: path is empty: want the path of a file")
		}
		err = trace.Take().WriteFile(C.GoString(path))
		return traceError(err)
	}()
	return fail(err, e, n)
}

// traceError tells a path that is wrong from a file system that is full or fails.
func traceError(err error) error {
	if err == nil {
		return nil
	}
	for _, wrong := range []error{
		trace.ErrNotRegular, syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.EEXIST, syscall.ENAMETOOLONG,
		syscall.ELOOP, syscall.EACCES, syscall.EPERM, syscall.EROFS,
	} {
		if errors.Is(err, wrong) {
			return argument("mcast_trace: no trace was written: %v", err)
		}
	}
	if wrong := new(os.PathError); errors.As(err, &wrong) {
		return fabric.Unavailable("mcast_trace: no trace was written: %v", err)
	}
	return err
}

// signalled makes SIGUSR2 write the trace of this process. The first group with an MCAST_TRACE other than off says
// where to.
var signalled sync.Once

// traceOnSignal has SIGUSR2 write the trace where MCAST_TRACE says.
func traceOnSignal(s *config.Settings) {
	if s.Trace == "off" {
		return
	}
	signalled.Do(func() {
		where, log := s.Trace, group.Logger(s)
		wanted, err := watchSignal()
		if err != nil {
			log.Info("SIGUSR2 writes no trace", "error", err)
			return
		}
		go func() {
			for count := make([]byte, 8); ; {
				if _, err := wanted.Read(count); err != nil {
					return
				}
				monitor.DumpAtSignal(where, log)
			}
		}()
	})
}

// watchSignal returns a file that becomes readable with each SIGUSR2.
func watchSignal() (*os.File, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if code := C.mcast_watch_signal(C.int(fd)); code != 0 {
		return nil, errors.Join(fmt.Errorf("sigaction: %w", syscall.Errno(code)), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "SIGUSR2"), nil
}
