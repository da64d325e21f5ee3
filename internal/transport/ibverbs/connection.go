package ibverbs

// #include <stdlib.h>
// #include "verbs.h"
import "C"

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"
	"unsafe"
)

// ConnectionOptions say what a connection is to be.
type ConnectionOptions struct {
	Sends, Receives *Completions // may be the same
	Send            int          // transfers under way: all that have a completion to be polled
	Receive         int          // buffers that wait for messages
}

// Connection is an RC queue pair: a posted transfer arrives once and in order, or the connection fails. It loses
// nothing where a peer has no buffer: the device asks again until there is one. One goroutine at a time uses it.
//
//	c, _ := device.NewConnection(o)
//	c.Receive(buffers)              // before the peer may send
//	c.Connect(peer, time, 0)        // once both ranks know each other's Address
//	c.Post(transfers)               // once both ranks have connected
//
// A connection that has failed does so for good. Its first failed completion has the cause; transfers that
// were still under way, and later ones, complete as Flushed.
type Connection struct {
	qp     *C.rdma_qp
	device *Device
	own    Address
	posted *C.int // C's memory: for a variable of Go each call would allocate, since C gets its address
}

// Address is what a peer needs to know to connect. Its size is fixed, for encoding/binary.
type Address struct {
	GID    [16]byte
	Number uint32 // unique on its device alone
	PSN    uint32 // of the first packet
	MTU    uint32 // bytes
	LID    uint32 // InfiniBand alone, else 0
}

// Verb is what a Transfer does.
type Verb uint32

// A write or a read has no completion at the peer, and needs nothing there but registered memory. A write with an
// immediate takes the peer's oldest buffer as well, and completes there.
const (
	Write          Verb = C.RDMA_WRITE
	WriteImmediate Verb = C.RDMA_WRITE_IMMEDIATE
	Read           Verb = C.RDMA_READ
)

// Transfer is something to be written or read.
type Transfer struct {
	ID        uint64 // of its completion
	Local     uint64 // Region.Address; the memory is the device's until the completion
	Remote    uint64 // likewise at the peer
	LocalKey  uint32 // Region.Key
	RemoteKey uint32 // the peer's Region.RemoteKey
	Bytes     uint32 // may be 0
	Immediate uint32
	Verb      Verb
}

// Those cross to C as they are.
var (
	_ [unsafe.Sizeof(Transfer{})]byte   = [C.sizeof_rdma_transfer]byte{}
	_ [unsafe.Sizeof(Completion{})]byte = [C.sizeof_rdma_completion]byte{}
	_ [unsafe.Sizeof(Address{})]byte    = [C.sizeof_rdma_address]byte{}
)

// NewConnection returns a connection that waits for Connect.
func (d *Device) NewConnection(o ConnectionOptions) (*Connection, error) {
	var what *C.char
	qp, err := C.rdma_connection_open(d.pd, &d.place, o.Sends.c, o.Receives.c, C.int(o.Send), C.int(o.Receive), &what)
	if qp == nil {
		return nil, Unavailable("device %s, connection of %d transfers and %d buffers: %s: %w", d.name, o.Send, o.Receive,
			C.GoString(what), err)
	}
	return &Connection{
		qp: qp, device: d, posted: (*C.int)(C.calloc(1, C.sizeof_int)),
		own: Address{d.GID(), uint32(qp.qp_num), rand.Uint32N(1 << 24), uint32(d.MTU()), uint32(d.place.lid)},
	}, nil
}

// Address is this end's.
func (c *Connection) Address() Address { return c.own }

// Connect connects to a peer that connects to this end. A packet that is not acknowledged is repeated for within at
// least, and for twice within at most by the devices' specification. Then the connection fails with NoAnswer. There are
// seven tries, and the wait after each is the same. tclass is of the IP headers: DSCP << 2.
func (c *Connection) Connect(peer Address, within time.Duration, tclass uint8) error {
	if peer.Number >= 1<<24 || peer.PSN >= 1<<24 || bits.OnesCount32(peer.MTU) != 1 || peer.MTU < 256 || peer.MTU > 4096 {
		return fmt.Errorf("ibverbs: peer has queue %d, PSN %d and MTU %d: want 24 bits, 24 bits and a power of two from "+
			"256 to 4096",
			peer.Number, peer.PSN, peer.MTU)
	}
	e := C.rdma_join_peer(c.qp, &c.device.place, (*C.rdma_address)(unsafe.Pointer(&c.own)),
		(*C.rdma_address)(unsafe.Pointer(&peer)),
		C.int(exponent(within)), C.uint8_t(tclass))
	return failure("ibv_modify_qp", e)
}

const (
	tries     = 7 // connection.c: six repetitions
	leastWait = 4096 * time.Nanosecond
)

// exponent is the wait before a repetition as devices have it: leastWait times two to the power of 1 to 31.
func exponent(within time.Duration) int {
	return max(1, min(31, bits.Len64(uint64(max(within-1, 0)/(tries*leastWait)))))
}

// Receive gives the device n buffers for immediates; their completions have this ID.
func (c *Connection) Receive(id uint64, n int) error {
	if n == 0 {
		return nil
	}
	return failure("ibv_post_recv", C.rdma_post_buffers(c.qp, C.uint64_t(id), C.int(n)))
}

// Post begins transfers, in order, and returns how many the device took: all, unless too many are under way. Up to 64
// of them cost one doorbell.
func (c *Connection) Post(transfers []Transfer) (int, error) {
	if len(transfers) == 0 {
		return 0, nil
	}
	e := C.rdma_post_transfers(c.qp, (*C.rdma_transfer)(unsafe.Pointer(&transfers[0])), C.int(len(transfers)), c.posted)
	return int(*c.posted), failure("ibv_post_send", e)
}

// Fail ends the connection as if it had failed: all posted transfers complete, as Flushed unless they have ended
// otherwise.
func (c *Connection) Fail() error { return failure("ibv_modify_qp", C.rdma_fail(c.qp)) }

// Close ends the connection. Transfers under way may arrive or not; completions that were not polled are lost.
func (c *Connection) Close() error {
	err := failure("ibv_destroy_qp", C.rdma_connection_close(c.qp))
	C.free(unsafe.Pointer(c.posted))
	c.qp, c.posted = nil, nil
	return err
}
