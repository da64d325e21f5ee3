// Package profilertest stands for NCCL's profiler in tests: it keeps the events of a comm's messages.
package profilertest

/*
#cgo CFLAGS: -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wshadow -I${SRCDIR}/../..
#include "events.h"
*/
import "C"

import "unsafe"

// Event is the profiler's record of one message. Its fields are those of struct mcast_net_event, see mcast.h.
type Event struct {
	Parent        unsafe.Pointer
	Connection    uint32
	Sequence      uint32
	Tag           int
	Sending       bool
	Over, Lanes   int
	Room          int // bytes, as it started
	Bytes         int // as it ended
	Outcome       int
	Stops         int
	Peer          string
	AtStart       uint64 // the sum of its moments then
	Posted, Begun uint64
	Moved, Done   uint64
	Began, Ended  uint64 // Clock when it started, and stopped
}

// Values of Over and Outcome, from mcast.h.
const (
	TCP       = int(C.MCAST_NET_TCP)
	SHM       = int(C.MCAST_NET_SHM)
	RDMA      = int(C.MCAST_NET_RDMA)
	Done      = int(C.MCAST_NET_DONE)
	Failed    = int(C.MCAST_NET_FAILED)
	Abandoned = int(C.MCAST_NET_ABANDONED)
)

// Profiler returns a callback (nccl_profiler), which wants events, and forgets earlier events.
func Profiler() unsafe.Pointer {
	return unsafe.Pointer(C.profiler_begin())
}

// Events returns the events since, in the order of the starts. Wrong calls are counted in wrong: another id,
// or a stop without a start.
func Events() (events []Event, wrong int) {
	for i := range C.profiler_count() {
		e := C.profiler_at(i)
		events = append(events, Event{
			Parent: e.parent, Connection: uint32(e.end.connection), Sequence: uint32(e.start.sequence), Tag: int(e.start.tag),
			Sending: e.start.sending == 1, Over: int(e.start.over), Lanes: int(e.end.lanes), Room: int(e.start.bytes),
			Bytes: int(e.end.bytes), Outcome: int(e.end.outcome), Stops: int(e.stops), Peer: C.GoString(&e.start.peer[0]),
			AtStart: uint64(e.start.posted + e.start.begun + e.start.moved + e.start.done), Posted: uint64(e.end.posted),
			Begun: uint64(e.end.begun), Moved: uint64(e.end.moved), Done: uint64(e.end.done),
			Began: uint64(e.began), Ended: uint64(e.ended),
		})
	}
	return events, int(C.profiler_wrong())
}

// Clock returns CLOCK_MONOTONIC in nanoseconds.
func Clock() uint64 { return uint64(C.profiler_clock()) }
