// Package receive has the receive kernel, which kernel.h describes, and drives it from Go: a worker with its queues in
// memory that the garbage collector does not move. The other side of the queues, the hardware's, is Memory.
package receive

// #cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -Wshadow
// #include <stdlib.h>
// #include "kernel.h"
import "C"

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// Layout of the rings: struct receive_cqe and struct receive_copy.
const (
	EntryBytes = C.sizeof_struct_receive_cqe
	CopyBytes  = C.sizeof_struct_receive_copy
	GRH        = C.RECEIVE_GRH // what precedes a datagram in its staging slot
)

// Staging is where datagrams land and how they are copied on.
type Staging struct {
	Slots            uint64 // the address of the first
	SlotBytes        uint32
	LKey, RKey, Pair uint32 // keys of the slots and of the user's buffer; the copies' queue pair
}

// Queues say how large a worker's queues are.
type Queues struct {
	Completions, Receives int      // depths: powers of two
	Staging               *Staging // nil: UC, chunks land in place
}

func (q *Queues) check() error {
	switch {
	case bits.OnesCount(uint(q.Receives)) != 1 || q.Receives > 1<<15:
		return fmt.Errorf("receive: the receive queue has depth %d, allowed are powers of two up to %d", q.Receives, 1<<15)
	case bits.OnesCount(uint(q.Completions)) != 1 || q.Completions < q.Receives || q.Completions > 1<<22:
		return fmt.Errorf("receive: the completion queue has depth %d, allowed are powers of two from the receive queue's, "+
			"%d, to %d", q.Completions, q.Receives, 1<<22)
	}
	return nil
}

// Operation is what a worker receives: see receive_start.
type Operation struct {
	Number                uint32 // the immediate of the first chunk
	Buffer                uint64 // the address of the first chunk
	Chunks                uint32
	ChunkBytes, LastBytes uint32
	Others                []uint32 // chunks that other workers receive
}

func (o *Operation) check() error {
	switch {
	case o.Chunks < 1 || o.Chunks > 1<<31:
		return fmt.Errorf("receive: %d chunks, allowed are 1 to %d", o.Chunks, uint32(1<<31))
	case o.LastBytes < 1 || o.LastBytes > o.ChunkBytes || o.ChunkBytes > 1<<31-GRH-1:
		return fmt.Errorf("receive: chunks of %d bytes and a last one of %d, allowed are 1 to %d and no more than that",
			o.ChunkBytes, o.LastBytes, 1<<31-GRH-1)
	case o.Number&(1<<bits.Len32(o.Chunks-1)-1) != 0:
		return fmt.Errorf("receive: operation %#x has bits where the PSNs of %d chunks are", o.Number, o.Chunks)
	}
	return nil
}

// Memory is what a worker shares with the hardware, laid out as that has it.
type Memory struct {
	Entries       []byte // of the completion queue
	Copies        []byte // descriptors
	CopyEntry     []byte // the one entry of the copies' completion queue
	Records       []byte // doorbell records, big-endian: completions taken, receives posted, copies posted
	Doorbell      []byte // the register
	Bitmap        []uint64
	bitmapAddress unsafe.Pointer
}

// Worker is one worker of the kernel.
type Worker struct {
	Memory
	c      *C.struct_receive_worker
	uc     bool
	chunks uint32
}

// Open makes a worker and posts all its receives.
func Open(q Queues) (*Worker, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	w := &Worker{c: (*C.struct_receive_worker)(allocate(C.sizeof_struct_receive_worker)), uc: q.Staging == nil}
	w.Entries, w.Copies = block(q.Completions*EntryBytes), block(q.Receives*CopyBytes)
	w.CopyEntry, w.Records, w.Doorbell = block(EntryBytes), block(3*4), block(8)
	// No entry was written yet: MLX5_CQE_INVALID.
	for at := EntryBytes - 1; at < len(w.Entries); at += EntryBytes {
		w.Entries[at] = C.RECEIVE_CQE_INVALID<<4 | 1
	}
	w.CopyEntry[EntryBytes-1] = C.RECEIVE_CQE_INVALID << 4

	w.c.cqes, w.c.cq_depth = (*C.struct_receive_cqe)(start(w.Entries)), C.uint32_t(q.Completions)
	w.c.rq_depth = C.uint32_t(q.Receives)
	w.c.cq_record, w.c.rq_record, w.c.copy_record = w.record(0), w.record(1), w.record(2)
	w.c.copies, w.c.copy_cqe = (*C.struct_receive_copy)(start(w.Copies)), (*C.struct_receive_cqe)(start(w.CopyEntry))
	w.c.copy_doorbell = (*C.uint64_t)(start(w.Doorbell))
	if w.uc {
		C.receive_open(w.c, nil)
		return w, nil
	}
	s := q.Staging
	C.receive_open(w.c, &C.struct_receive_staging{
		slots: C.uint64_t(s.Slots), slot_bytes: C.uint32_t(s.SlotBytes), lkey: C.uint32_t(s.LKey), rkey: C.uint32_t(s.RKey),
		qpn: C.uint32_t(s.Pair),
	})
	return w, nil
}

// Start begins an operation; the one before has no more copies under way (Done), or their chunks are given up.
func (w *Worker) Start(o Operation) error {
	if err := o.check(); err != nil {
		return err
	}
	C.free(w.bitmapAddress)
	words := (int(o.Chunks) + 63) / 64
	w.bitmapAddress = allocate(words * 8)
	w.Bitmap = unsafe.Slice((*uint64)(w.bitmapAddress), words)
	missing := o.Chunks
	for _, psn := range o.Others {
		w.Bitmap[psn/64] |= 1 << (psn % 64)
		missing--
	}
	w.chunks = o.Chunks
	C.receive_start(w.c, C.uint32_t(o.Number), C.uint64_t(o.Buffer), C.uint32_t(o.Chunks), C.uint32_t(o.ChunkBytes),
		C.uint32_t(o.LastBytes), (*C.uint64_t)(w.bitmapAddress), C.uint32_t(missing))
	return nil
}

// Poll takes up to limit completions and returns how many it took.
func (w *Worker) Poll(limit int) int {
	if w.uc {
		return int(C.receive_uc(w.c, C.uint32_t(limit)))
	}
	return int(C.receive_ud(w.c, C.uint32_t(limit)))
}

// Done says whether every chunk is at its place in the buffer.
func (w *Worker) Done() bool { return C.receive_done(w.c) != 0 }

// Missing returns the first run of missing chunks from a PSN on: its first, and how many; none: the number of
// chunks, and 0.
func (w *Worker) Missing(from uint32) (first, count uint32) {
	var n C.uint32_t
	first = uint32(C.receive_missing(w.c, C.uint32_t(from), &n))
	return first, uint32(n)
}

// Counters are what a worker has counted since it was opened, but for Missing, which is the operation's.
type Counters struct {
	Missing                                      uint32
	Duplicates, Gaps, Foreign, Malformed, Errors uint32
	Syndrome, CopySyndrome                       uint8
}

// Counters returns them.
func (w *Worker) Counters() Counters {
	return Counters{
		Missing: uint32(w.c.missing), Duplicates: uint32(w.c.duplicates), Gaps: uint32(w.c.gaps),
		Foreign:   uint32(w.c.foreign),
		Malformed: uint32(w.c.malformed), Errors: uint32(w.c.errors), Syndrome: uint8(w.c.syndrome),
		CopySyndrome: uint8(w.c.copy_syndrome),
	}
}

// Close frees a worker's memory. The hardware must have ceased to use it.
func (w *Worker) Close() {
	for _, b := range [][]byte{w.Entries, w.Copies, w.CopyEntry, w.Records, w.Doorbell} {
		C.free(start(b))
	}
	C.free(w.bitmapAddress)
	C.free(unsafe.Pointer(w.c))
	*w = Worker{}
}

func (w *Worker) record(i int) *C.be32 { return (*C.be32)(unsafe.Pointer(&w.Records[4*i])) }

// allocate returns zeroed memory, or panics as Go does where there is none.
func allocate(size int) unsafe.Pointer {
	p := C.calloc(1, C.size_t(size))
	if p == nil {
		panic(fmt.Sprintf("receive: no memory for %d bytes", size))
	}
	return p
}

func block(size int) []byte { return unsafe.Slice((*byte)(allocate(size)), size) }

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
