package ibverbs

// #include "verbs.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access is what may be done to registered memory. This host's device may always read it.
type Access uint32

// They are combined by |. Peers need the memory's key as well.
const (
	ReadOnly    Access = 0
	PeerRead    Access = C.RDMA_REMOTE_READ // peers read it as well
	Local       Access = C.RDMA_LOCAL_WRITE // the device writes there, such as received datagrams
	RemoteWrite        = Local | C.RDMA_REMOTE_WRITE
)

// Region is memory that the device may use.
type Region struct {
	Bytes []byte // nil for memory registered by its address
	mr    *C.rdma_mr
	lkey  C.uint32_t
	rkey  C.uint32_t // as lkey: a caller may ask for it while another closes the region
	own   bool       // mapped by Map
}

// Registrations returns how many the device has made since it was opened. Any goroutine may ask.
func (d *Device) Registrations() uint64 { return d.registrations.Load() }

// Register lets the device use memory, which stays where it is until Close: none of Go's heap.
func (d *Device) Register(b []byte, a Access) (*Region, error) {
	r, err := d.RegisterAt(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), a)
	if err == nil {
		r.Bytes = b
	}
	return r, err
}

// RegisterAt lets the device use size bytes of the host's memory at an address, which stay mapped until Close: the
// device keeps these pages, even if others are mapped there later.
func (d *Device) RegisterAt(addr, size uintptr, a Access) (*Region, error) {
	mr, err := C.rdma_register(d.pd, C.uintptr_t(addr), C.size_t(size), C.int(a))
	switch {
	case mr != nil:
		d.registrations.Add(1)
		return &Region{mr: mr, lkey: mr.lkey, rkey: mr.rkey}, nil
	case errors.Is(err, unix.ENOMEM):
		return nil, Unavailable("device %s: %d bytes cannot be registered, which locks them in memory: %w (ulimit -l "+
			"unlimited; systemd: LimitMEMLOCK=infinity; docker run --ulimit memlock=-1)",
			d.name, size, err)
	}
	return nil, Unavailable("device %s: ibv_reg_mr of %d bytes at %#x: %w", d.name, size, addr, err)
}

// SurvivesFork returns an error if the memory of a process that forks is not safe with the device. On a Linux before
// 5.12 the first of parent and child to write to a page afterwards gets a copy, and the device keeps the other page.
// Memory that Map returns is safe always.
func SurvivesFork() error {
	if err := loaded(); err != nil {
		return err
	}
	switch C.rdma_survives_fork() {
	case 1:
		return nil
	case 0:
		return Unavailable("registered memory would not survive a fork of this process: it takes Linux 5.12, or " +
			"RDMAV_FORK_SAFE=1")
	}
	return Unavailable("whether registered memory survives a fork is not known: %s is older than rdma-core 37 "+
		"(libibverbs1 of Debian 12, Ubuntu 22.04)", Library)
}

// Map returns new memory, registered, that forked children do not have.
func (d *Device) Map(bytes int, a Access) (*Region, error) {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("ibverbs: map %d bytes: %w", bytes, err)
	}
	if err = unix.Madvise(b, unix.MADV_DONTFORK); err == nil {
		var r *Region
		if r, err = d.Register(b, a); err == nil {
			r.own = true
			return r, nil
		}
	}
	return nil, errors.Join(err, unix.Munmap(b))
}

// Address is where byte i of the region is, for transfers from here and for peers.
func (r *Region) Address(i int) uint64 { return uint64(uintptr(r.mr.addr)) + uint64(i) }

// Key is what transfers name the region by that this device is given.
func (r *Region) Key() uint32 { return uint32(r.lkey) }

// RemoteKey is what a peer's transfers name it by.
func (r *Region) RemoteKey() uint32 { return uint32(r.rkey) }

// Close takes the memory from the device.
func (r *Region) Close() error {
	err := failure("ibv_dereg_mr", C.rdma_deregister(r.mr))
	if err == nil && r.own {
		err = unix.Munmap(r.Bytes)
	}
	r.Bytes = nil
	return err
}
