// Package ibverbs has the verbs of RDMA devices (InfiniBand's libibverbs) that this module uses. The library is loaded
// at run time: to build needs nothing of RDMA, and at run time Open names a missing library. Devices are RoCE v2 ones,
// over IPv4, or InfiniBand's, by the IPv4 address of their IPoIB interface.
package ibverbs

// #cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "verbs.h"
import "C"

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"go.uber.org/atomic"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Library is the file name of the loaded library.
const Library = "libibverbs.so.1"

// Device is an open device, with the port that is on an interface.
type Device struct {
	name          string
	context       *C.rdma_context
	pd            *C.rdma_pd
	place         C.rdma_place
	address       netip.Addr
	registrations atomic.Uint64
}

// Open opens the device that has a port on an interface and a RoCE v2 GID of the address there. For an IPoIB interface
// it opens the device below. Its errors wrap fabric.ErrUnavailable.
func Open(ifi *net.Interface, address netip.Addr) (*Device, error) {
	if err := loaded(); err != nil {
		return nil, err
	}
	if !address.Is4() {
		return nil, Unavailable("address %v of %s: RDMA goes over IPv4 here, so far (MCAST_FAMILY=4)", address, ifi.Name)
	}
	var n C.int
	list := C.rdma_list(&n)
	if list == nil || n == 0 {
		if list != nil {
			C.rdma_unlist(list)
		}
		return nil,
			Unavailable("this host has no RDMA device (rdma link; for soft-RoCE: rdma link add NAME type rxe netdev %s)",
				ifi.Name)
	}
	defer C.rdma_unlist(list)
	var on *membership
	if overInfiniBand(ifi.Name) {
		var err error
		if on, err = locate(address); err != nil {
			return nil, err
		}
		defer on.close()
	}
	var why []string
	for _, d := range unsafe.Slice(list, n) {
		opened, err := open(d, ifi, address, on)
		if err == nil {
			return opened, nil
		}
		why = append(why, err.Error())
	}
	return nil, Unavailable("no RDMA device is usable on %s: %s", ifi.Name, strings.Join(why, "; "))
}

// loaded loads the library, once in a process.
var loaded = sync.OnceValue(func() error { return load(Library) })

func load(library string) error {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	if missing := C.rdma_load(name); missing != nil {
		return Unavailable("%s cannot be loaded (Debian, Ubuntu: apt install libibverbs1 ibverbs-providers; Fedora: dnf "+
			"install libibverbs): %s",
			library, C.GoString(missing))
	}
	return nil
}

// open opens a device if the address is its own; for an IPoIB interface, on says which device and port has the address.
func open(d *C.rdma_device, ifi *net.Interface, address netip.Addr, on *membership) (_ *Device, err error) {
	v := &Device{name: C.GoString(C.rdma_name(d)), address: address}
	if on != nil && on.device() != v.name {
		return nil, fmt.Errorf("device %s is not on %s", v.name, ifi.Name)
	}
	if v.context, err = C.rdma_open(d); v.context == nil {
		return nil, fmt.Errorf("device %s cannot be opened (it needs access to /dev/infiniband/uverbs*; in a container, "+
			"--device=/dev/infiniband): %w", v.name, err)
	}
	if e := v.find(ifi, on); e != 0 {
		return nil, errors.Join(v.lacks(syscall.Errno(e), ifi, address), v.Close())
	}
	if v.pd, err = C.rdma_alloc(v.context); v.pd == nil {
		return nil, errors.Join(fmt.Errorf("device %s: ibv_alloc_pd: %w", v.name, err), v.Close())
	}
	return v, nil
}

// find finds the port.
func (d *Device) find(ifi *net.Interface, on *membership) C.int {
	if on != nil {
		return C.rdma_find_port(d.context, on.m.port, on.m.pkey_index, &d.place)
	}
	as4 := d.address.As4()
	return C.rdma_find(d.context, C.uint32_t(ifi.Index), (*C.uint8_t)(&as4[0]), &d.place)
}

// lacks says in words why a device does not serve.
func (d *Device) lacks(e syscall.Errno, ifi *net.Interface, address netip.Addr) error {
	switch e {
	case unix.ENETDOWN:
		return fmt.Errorf("the port of device %s on %s is not active (rdma link)", d.name, ifi.Name)
	case unix.EADDRNOTAVAIL:
		return fmt.Errorf("device %s has no RoCE v2 GID of %v on %s (see /sys/class/infiniband/%s/ports/1/gids)", d.name,
			address, ifi.Name, d.name)
	}
	if C.rdma_infiniband(d.context) != 0 {
		return fmt.Errorf("device %s is InfiniBand's, and %s is not its IPoIB interface, which it takes (MCAST_IFACE=ib0; "+
			"rdma link)", d.name, ifi.Name)
	}
	return fmt.Errorf("device %s is not on %s", d.name, ifi.Name)
}

// InfiniBand reports whether the device's link is, and not Ethernet.
func (d *Device) InfiniBand() bool { return d.place.lid != 0 }

// Name is the device's, as rdma link shows it.
func (d *Device) Name() string { return d.name }

// MTU returns the bytes of the largest datagram.
func (d *Device) MTU() int { return int(d.place.mtu) }

// GID returns the address of the port.
func (d *Device) GID() [16]byte { return *(*[16]byte)(unsafe.Pointer(&d.place.gid)) }

// Close closes the device. All objects opened on it are closed already.
func (d *Device) Close() error {
	var errs []error
	if d.pd != nil {
		errs = append(errs, failure("ibv_dealloc_pd", C.rdma_dealloc(d.pd)))
	}
	if d.context != nil {
		errs = append(errs, failure("ibv_close_device", C.rdma_close(d.context)))
	}
	d.pd, d.context = nil, nil
	return errors.Join(errs...)
}

func failure(verb string, e C.int) error {
	if e == 0 {
		return nil
	}
	return fmt.Errorf("ibverbs: %s: %w", verb, syscall.Errno(e))
}

// Unavailable says what RDMA lacks on this machine, and wraps fabric.ErrUnavailable.
func Unavailable(format string, args ...any) error {
	return fabric.Unavailable("verbs: %w", fmt.Errorf(format, args...))
}
