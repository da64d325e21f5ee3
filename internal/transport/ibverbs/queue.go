package ibverbs

// #include <stdlib.h>
// #include "verbs.h"
import "C"

import (
	"fmt"
	"net/netip"
	"unsafe"
)

// GRH is how many bytes precede a datagram in its slot. With RoCE v2 over IPv4 the last 20 are the IPv4 header.
const GRH = C.RDMA_GRH

// QueueOptions say what a queue is to be.
type QueueOptions struct {
	Group   netip.Addr // IPv4
	Managed bool       // it is joined by librdmacm, as always on InfiniBand
	Key     uint32     // the device refuses datagrams with another one; a managed group has its own
	Send    int        // datagrams under way
	Receive int        // datagrams that wait to be taken
	TClass  uint8      // of the IP headers: DSCP << 2; InfiniBand has the group's
	Hops    uint8      // TTL, likewise
}

// Queue sends datagrams to a multicast group, and receives them. One goroutine at a time uses it.
type Queue struct {
	q      *C.rdma_queue
	device *Device
	member *membership // nil unless managed
}

// Arrival is a datagram that lies in a slot of the receive ring.
type Arrival struct {
	Slot   uint32
	Bytes  uint32 // after the GRH
	From   uint32 // number of the sender's queue
	Status int32  // 0, or the status of a failed completion
}

// NewQueue joins a group by ibv_attach_mcast. The host must be a member, too: where librdmacm does not join the group,
// a socket on the interface must.
func (d *Device) NewQueue(o QueueOptions) (_ *Queue, err error) {
	var group [16]byte
	as4 := o.Group.As4()
	group[10], group[11] = 0xff, 0xff
	copy(group[12:], as4[:])
	q := &Queue{q: (*C.rdma_queue)(C.calloc(1, C.sizeof_rdma_queue)), device: d}
	to := C.rdma_target_of(&d.place, (*C.uint8_t)(&group[0]), C.uint8_t(o.TClass), C.uint8_t(o.Hops), C.uint32_t(o.Key))
	if o.Managed || d.InfiniBand() {
		if q.member, err = d.join(o.Group); err != nil {
			q.Close()
			return nil, err
		}
		to = C.rdma_target_joined(&d.place, q.member.m, C.uint8_t(o.TClass), C.uint8_t(o.Hops))
	}
	var what *C.char
	e := C.rdma_queue_open(q.q, d.pd, &d.place, to, C.int(o.Send), C.int(o.Receive), &what)
	if err := failure(C.GoString(what), e); err != nil {
		q.Close()
		return nil, Unavailable("device %s, queue of %d and %d datagrams to %v: %w", d.name, o.Send, o.Receive, o.Group, err)
	}
	return q, nil
}

// join has librdmacm join a group for this device.
func (d *Device) join(group netip.Addr) (*membership, error) {
	m, err := locate(d.address)
	if err != nil {
		return nil, err
	}
	if found := m.device(); found != d.name || m.m.port != d.place.port {
		m.close()
		return nil, Unavailable("%v is on port %d of device %s, and not on port %d of %s", d.address, int(m.m.port), found,
			int(d.place.port), d.name)
	}
	if err = m.join(group, joinWithin); err != nil {
		m.close()
		return nil, Unavailable("device %s: %w", d.name, err)
	}
	return m, nil
}

// Number is the queue's, unique on its device alone.
func (q *Queue) Number() uint32 { return uint32(q.q.qp.qp_num) }

// FD is readable once what Arm asked for has happened.
func (q *Queue) FD() int { return int(q.q.channel.fd) }

// Receive has slots of a ring, each of so many bytes, filled by arrivals, and returns how many the device took.
func (q *Queue) Receive(ring *Region, slot int, slots []uint32) (n int, err error) {
	if len(slots) == 0 {
		return 0, nil
	}
	e := C.rdma_post_receive(q.q, ring.mr, C.size_t(slot), (*C.uint32_t)(&slots[0]), C.int(len(slots)))
	return int(q.q.posted), failure("ibv_post_recv", e)
}

// Send sends datagrams of so many bytes each from a ring of count slots: the first from slot first % count, and so on.
// It returns how many the device took.
func (q *Queue) Send(ring *Region, slot, count int, first uint64, bytes []uint32) (n int, err error) {
	if len(bytes) == 0 {
		return 0, nil
	}
	return q.SendWith(ring, slot, count, first, bytes, Payload{})
}

// Payload is the end of the datagrams of a batch, which begin in a ring: registered memory from an address on. Each
// datagram has a share, and the last one the rest.
type Payload struct {
	Region      *Region
	Addr        uintptr
	Bytes, Each int // of all, of one; 0: there is none
}

// SendWith is Send of datagrams that end with a payload, which the device reads by itself until Sent says that they are
// gone.
func (q *Queue) SendWith(ring *Region, slot, count int, first uint64, bytes []uint32, p Payload) (n int, err error) {
	q.q.payload = C.rdma_payload{}
	if p.Bytes > 0 {
		q.q.payload = C.rdma_payload{C.uint64_t(p.Addr), C.uint64_t(p.Bytes), C.uint32_t(p.Each), p.Region.lkey}
	}
	e := C.rdma_post_send(q.q, ring.mr, C.size_t(slot), C.uint32_t(count), C.uint64_t(first), (*C.uint32_t)(&bytes[0]),
		C.int(len(bytes)))
	return int(q.q.posted), failure("ibv_post_send", e)
}

// Inlined returns how many bytes a datagram has at most that the device takes with its descriptor, without reading
// memory.
func (q *Queue) Inlined() int { return int(q.q.inlined) }

// Arrived stores arrivals, and returns how many.
func (q *Queue) Arrived(a []Arrival) (int, error) {
	n := C.rdma_arrivals(q.q, (*C.rdma_arrival)(unsafe.Pointer(&a[0])), C.int(len(a)))
	if n < 0 {
		return 0, fmt.Errorf("ibverbs: ibv_poll_cq fails on device %s", q.device.name)
	}
	return int(n), nil
}

// Sent returns how many datagrams are sent for good, and their slots free: all before the one of that number.
func (q *Queue) Sent() (uint64, error) {
	switch status := C.rdma_sent(q.q); {
	case status < 0:
		return uint64(q.q.sent), fmt.Errorf("ibverbs: ibv_poll_cq fails on device %s", q.device.name)
	case status > 0:
		return uint64(q.q.sent),
			fmt.Errorf("ibverbs: device %s does not send: %s", q.device.name, C.GoString(C.rdma_status(status)))
	}
	return uint64(q.q.sent), nil
}

// Arm has FD become readable once something arrives from now on, or, with sends, is sent. Earlier events do not count:
// look once more.
func (q *Queue) Arm(sends bool) error {
	with := C.int(0)
	if sends {
		with = 1
	}
	return failure("ibv_req_notify_cq", C.rdma_arm(q.q, with))
}

// Close leaves the group and ends the queue.
func (q *Queue) Close() {
	C.rdma_queue_close(q.q)
	q.member.close()
	C.free(unsafe.Pointer(q.q))
	q.q = nil
}
