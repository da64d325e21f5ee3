package batch

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Refusal is why the kernel did not take a datagram.
type Refusal uint8

// A datagram marked as lost is lost like any other; one without room may be sent later.
const (
	NoRoom      Refusal = iota // the socket's buffer is full: no room until the socket is writable
	Congested                  // a device's queue is, or memory is short: nothing tells when there is room
	Forbidden                  // lost: a firewall or a security policy does not let it out
	TooLarge                   // lost: the interface or the path takes less
	Unreachable                // lost: the interface is down, its address is gone, or there is no way
	Defect                     // the call is wrong, not the network
)

// RefusalOf returns what an error of a send means. Some errors are what the network, or somebody in
// its name, said about an earlier datagram: they are Unreachable, and told once.
func RefusalOf(e syscall.Errno) Refusal {
	switch e {
	case unix.EAGAIN:
		return NoRoom
	case unix.ENOBUFS, unix.ENOMEM:
		return Congested
	case unix.EPERM:
		return Forbidden
	case unix.EMSGSIZE:
		return TooLarge
	case unix.EBADF, unix.EFAULT, unix.ENOTSOCK:
		return Defect
	}
	return Unreachable
}
