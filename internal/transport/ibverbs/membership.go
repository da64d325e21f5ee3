package ibverbs

// #include <stdlib.h>
// #include "verbs.h"
import "C"

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cmLibrary is what joins groups on InfiniBand, where the subnet manager has to be asked.
const cmLibrary = "librdmacm.so.1"

// joinWithin bounds how long the answer to a join is waited for. The kernel repeats its question for some seconds.
const joinWithin = 20 * time.Second

// membership is of a multicast group that librdmacm has joined, or, before that, where an address is.
type membership struct{ m *C.rdma_membership }

// loadedCM loads librdmacm, once in a process.
var loadedCM = sync.OnceValue(func() error { return loadCM(cmLibrary) })

func loadCM(library string) error {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	if missing := C.rdma_load_cm(name); missing != nil {
		return Unavailable("%s cannot be loaded, which joins groups on InfiniBand (Debian, Ubuntu: apt install librdmacm1; "+
			"Fedora: dnf install librdmacm): %s",
			library, C.GoString(missing))
	}
	return nil
}

// locate finds the device and port of an address of this host.
func locate(address netip.Addr) (*membership, error) {
	if err := loadedCM(); err != nil {
		return nil, err
	}
	m := &membership{(*C.rdma_membership)(C.calloc(1, C.sizeof_rdma_membership))}
	as4 := address.As4()
	var what *C.char
	e := C.rdma_member_open(m.m, (*C.uint8_t)(&as4[0]), &what)
	if e == 0 {
		return m, nil
	}
	verb, opened := C.GoString(what), m.m.channel != nil
	m.close()
	switch {
	case !opened:
		return nil,
			Unavailable("%s: %w (it takes /dev/infiniband/rdma_cm: modprobe rdma_ucm; in a container, --device=/dev/infiniband)",
				verb, syscall.Errno(e))
	case errors.Is(syscall.Errno(e), unix.ENODEV):
		return nil, Unavailable("%v is an address of no RDMA device: on InfiniBand it takes the address of an IPoIB "+
			"interface (ip addr; rdma link)", address)
	}
	return nil, Unavailable("%s of %v: %w", verb, address, syscall.Errno(e))
}

// device is the name of the one that was found.
func (m *membership) device() string { return C.GoString(C.rdma_member_device(m.m)) }

// join joins a group.
func (m *membership) join(group netip.Addr, within time.Duration) error {
	as4 := group.As4()
	var what *C.char
	switch e := syscall.Errno(C.rdma_member_join(m.m, (*C.uint8_t)(&as4[0]), C.int(within.Milliseconds()), &what)); e {
	case 0:
		return nil
	case unix.ETIMEDOUT:
		return fmt.Errorf("%s of %v: no answer within %v (does a subnet manager run? sminfo)", C.GoString(what), group,
			within)
	case unix.ECONNREFUSED:
		return fmt.Errorf("%s of %v: refused, with status %d", C.GoString(what), group, int(m.m.status))
	default:
		return fmt.Errorf("%s of %v: %w", C.GoString(what), group, e)
	}
}

// close leaves the group.
func (m *membership) close() {
	if m != nil {
		C.rdma_member_close(m.m)
		C.free(unsafe.Pointer(m.m))
	}
}
