package p2p

// #cgo LDFLAGS: -ldl
// #include <errno.h>
// #include <stdlib.h>
// #include "p2p.h"
import "C"

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
)

// Device is an RDMA device that moves messages. It is open as long as the process.
type Device struct {
	c    C.struct_p2p_device
	name string // and its interface's

	DMABuf bool // it takes memory of other devices as DMA-BUFs
}

// devices holds the RDMA devices that this process has opened, by interface and address.
var devices = struct {
	sync.Mutex
	by map[string]*Device
}{by: map[string]*Device{}}

var loaded = sync.OnceValue(func() error {
	name := C.CString(ibverbs.Library)
	defer C.free(unsafe.Pointer(name))
	if missing := C.p2p_rdma_load(name); missing != nil {
		return ibverbs.Unavailable("%s cannot be loaded (Debian, Ubuntu: apt install libibverbs1 ibverbs-providers; "+
			"Fedora: dnf install libibverbs): %s",
			ibverbs.Library, C.GoString(missing))
	}
	return nil
})

// OpenDevice returns the RDMA device with its port on an interface, with this IPv4 address. Errors wrap
// fabric.ErrUnavailable and name the missing part.
func OpenDevice(iface string, addr netip.Addr) (*Device, error) {
	addr = addr.Unmap()
	devices.Lock()
	defer devices.Unlock()
	key := iface + " " + addr.String()
	if d := devices.by[key]; d != nil {
		return d, nil
	}
	if err := loaded(); err != nil {
		return nil, err
	}
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return nil, ibverbs.Unavailable("interface %s: %w", iface, err)
	}
	v, err := ibverbs.Open(ifi, addr)
	if err != nil {
		return nil, err
	}
	if v.InfiniBand() {
		return nil, errors.Join(ibverbs.Unavailable("device %s: point-to-point messages go over RoCE here, so far; over "+
			"InfiniBand NCCL's own transport has them (MCAST_NET_FABRIC=tcp)", v.Name()), v.Close())
	}
	h := v.Handles()
	d := &Device{name: fmt.Sprintf("%s on %s", v.Name(), iface)}
	d.c = C.struct_p2p_device{pd: h.PD, port: C.int(h.Port), gid_index: C.int(h.GIDIndex), mtu: C.int(v.MTU())}
	gid := v.GID()
	for i, b := range gid {
		d.c.gid[i] = C.uint8_t(b)
	}
	d.DMABuf = C.p2p_rdma_takes_dmabuf(d.c.pd) == 1
	devices.by[key] = d
	return d, nil
}

// DeviceAt returns the device that p2p_device_of names, or nil.
func DeviceAt(pd unsafe.Pointer) *Device {
	if pd == nil {
		return nil
	}
	devices.Lock()
	defer devices.Unlock()
	for _, d := range devices.by {
		if d.c.pd == pd {
			return d
		}
	}
	return nil
}

// Memory is registered with a device: the device reads and writes it, and so do peers that are given its key.
type Memory struct{ c C.struct_p2p_memory }

// Keys returns the memory's key for this process's own device, and the one for peers' devices.
func (m *Memory) Keys() (local, remote uint32) { return uint32(m.c.local), uint32(m.c.remote) }

// Register registers memory, of the host or, where the driver lets devices have it, of a GPU. It is locked until Close.
func (d *Device) Register(addr, size uintptr) (*Memory, error) {
	m := &Memory{}
	if e := C.p2p_rdma_register(d.c.pd, C.uintptr_t(addr), C.size_t(size), &m.c); e != 0 {
		return nil, d.unregistered("ibv_reg_mr", uint64(size), syscall.Errno(e))
	}
	return m, nil
}

// RegisterDMABuf registers size bytes of a DMA-BUF, from offset on, which requests name by the address of the memory.
func (d *Device) RegisterDMABuf(fd int, offset uint64, size, addr uintptr) (*Memory, error) {
	m := &Memory{}
	if e := C.p2p_rdma_register_dmabuf(d.c.pd, C.uint64_t(offset), C.size_t(size), C.uintptr_t(addr), C.int(fd),
		&m.c); e != 0 {
		return nil, d.unregistered("ibv_reg_dmabuf_mr", uint64(size), syscall.Errno(e))
	}
	return m, nil
}

func (d *Device) unregistered(verb string, size uint64, e syscall.Errno) error {
	hint := ""
	if errors.Is(e, unix.ENOMEM) {
		hint = " (memory is locked for it: ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; docker run --ulimit " +
			"memlock=-1)"
	}
	return ibverbs.Unavailable("device %s: %s of %d bytes: %w%s", d.name, verb, size, e, hint)
}

// Close ends the registration.
func (m *Memory) Close() error {
	if e := C.p2p_rdma_deregister(&m.c); e != 0 {
		return fmt.Errorf("p2p: ibv_dereg_mr: %w", syscall.Errno(e))
	}
	return nil
}

// queues are the queue pairs of one end of a connection in the making.
type queues struct {
	device *Device
	v      *C.struct_p2p_verbs // nil once they are a comm's
	own    C.struct_p2p_introduction
}

func (d *Device) queues(sending bool, lanes int, timeout time.Duration) (*queues, error) {
	q := &queues{device: d}
	var what *C.char
	way := C.int(0)
	if sending {
		way = 1
	}
	v, err := C.p2p_verbs_open(&d.c, way, C.int(lanes), C.uint(min(timeout.Milliseconds(), math.MaxInt32)),
		C.uint32_t(random64()), &q.own, &what)
	if v == nil {
		return nil, ibverbs.Unavailable("device %s, %d queue pairs: %s: %w", d.name, lanes, C.GoString(what), err)
	}
	q.v = v
	return q, nil
}

// introduce tells the peer of them.
func (q *queues) introduce(c net.Conn) error {
	_, err := c.Write(C.GoBytes(unsafe.Pointer(&q.own), C.int(unsafe.Sizeof(q.own))))
	return err
}

// join reads the peer's introduction and connects these queue pairs to the peer's.
func (q *queues) join(c net.Conn) error {
	var peer C.struct_p2p_introduction
	if _, err := io.ReadFull(c, unsafe.Slice((*byte)(unsafe.Pointer(&peer)), unsafe.Sizeof(peer))); err != nil {
		return unheard(err)
	}
	var what *C.char
	if e := C.p2p_verbs_join(q.v, &q.device.c, &q.own, &peer, &what); e != 0 {
		return ibverbs.Unavailable("device %s: %s: %w", q.device.name, C.GoString(what), syscall.Errno(e))
	}
	return nil
}

// unheard returns the error for a peer that has not sent its introduction.
func unheard(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the peer gave up before its queue pairs were connected, and its log says why: %w", err)
	}
	return fmt.Errorf("hear of the peer's queue pairs: %w", err)
}

// connectQueues makes the connecting end's, which are the first that can be written to.
func (d *Device) connectQueues(c net.Conn, lanes int, timeout time.Duration) (*queues, error) {
	q, err := d.queues(true, lanes, timeout)
	if err != nil {
		return nil, err
	}
	if err = q.introduce(c); err == nil {
		err = q.join(c)
	}
	if err == nil {
		_, err = c.Write([]byte{1})
	}
	if err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

// acceptQueues makes the listening end's. It offers nothing until the other is there.
func (d *Device) acceptQueues(c net.Conn, lanes int, timeout time.Duration) (*queues, error) {
	q, err := d.queues(false, lanes, timeout)
	if err != nil {
		return nil, err
	}
	if err = q.join(c); err == nil {
		err = q.introduce(c)
	}
	if err == nil {
		if _, err = io.ReadFull(c, make([]byte, 1)); err != nil {
			err = unheard(err)
		}
	}
	if err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

// close ends them unless they are a comm's.
func (q *queues) close() {
	if q != nil && q.v != nil {
		C.p2p_verbs_close(q.v)
		q.v = nil
	}
}
