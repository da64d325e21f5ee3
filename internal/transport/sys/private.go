package sys

import "syscall"

// OnSocket is told the descriptor of every socket that is Private, unless it is nil. The part of
// the process that knows about forks sets it once, before any socket is opened: a program in Go
// alone never forks.
var OnSocket func(fd int)

// Private says that a socket must not live on in a child of fork(): while a child holds it as well,
// the end of this process closes nothing, and the peer does not notice.
func Private(fd int) {
	if OnSocket != nil {
		OnSocket(fd)
	}
}

// PrivateConn is Private for a connection of Go.
func PrivateConn(c syscall.Conn) {
	if OnSocket == nil {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { OnSocket(int(fd)) }) // closed already: nothing to keep
	}
}
