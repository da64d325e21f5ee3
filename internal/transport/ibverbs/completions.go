package ibverbs

// #include <stdlib.h>
// #include "verbs.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Completions is where connections report finished transfers: a completion queue with its channel. Connections may
// share one, for sends and receives alike or one for each. One goroutine at a time uses it.
type Completions struct {
	c      *C.rdma_completions
	device *Device
}

// Completion is a transfer or a receive that is done, well or not.
type Completion struct {
	ID        uint64 // as it was posted with
	Bytes     uint32 // that came by a receive
	Immediate uint32 // that came with it
	Status    Status
	received  uint16
}

// Received reports whether a completion without an error is one of a receive.
func (c *Completion) Received() bool { return c.received != 0 }

// Status says how a transfer or a receive ended.
type Status uint16

// The statuses that callers tell apart; String has words for all.
const (
	OK       Status = 0
	Flushed  Status = C.RDMA_FLUSHED   // the connection had failed before, or was ended
	NoAnswer Status = C.RDMA_NO_ANSWER // the peer's device has not acknowledged it, however often it was repeated
)

// String is libibverbs's name for the status.
func (s Status) String() string { return C.GoString(C.rdma_status(C.int(s))) }

// NewCompletions returns a place for as many completions as may be due at a time: of all transfers and receives that
// its connections may have posted. Where more are, the device gives it up, and all of them with it.
func (d *Device) NewCompletions(depth int) (*Completions, error) {
	c := &Completions{c: (*C.rdma_completions)(C.calloc(1, C.sizeof_rdma_completions)), device: d}
	var what *C.char
	e := C.rdma_completions_open(c.c, d.context, C.int(depth), &what)
	if err := failure(C.GoString(what), e); err != nil {
		c.Close()
		return nil, Unavailable("device %s, %d completions: %w", d.name, depth, err)
	}
	return c, nil
}

// FD is readable once what Arm asked for has happened.
func (c *Completions) FD() int { return int(c.c.channel.fd) }

// Arm has FD become readable once something completes from now on. Earlier completions do not count: Poll once more.
func (c *Completions) Arm() error { return failure("ibv_req_notify_cq", C.rdma_completions_arm(c.c)) }

// Poll stores completions, of each connection in the order in which transfers were posted, and returns how many. It
// does not block.
func (c *Completions) Poll(done []Completion) (int, error) {
	if len(done) == 0 {
		return 0, nil
	}
	n := C.rdma_completions_poll(c.c, (*C.rdma_completion)(unsafe.Pointer(&done[0])), C.int(len(done)))
	if n < 0 {
		return 0, fmt.Errorf("ibverbs: ibv_poll_cq fails on device %s", c.device.name)
	}
	return int(n), nil
}

// Close ends it, after the connections that use it.
func (c *Completions) Close() {
	C.rdma_completions_close(c.c)
	C.free(unsafe.Pointer(c.c))
	c.c = nil
}
