package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Drawn says of an error of a bind to port 0, where the kernel has the choice, that no port was left.
func Drawn(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("%w: all ports of net.ipv4.ip_local_port_range are taken", err)
	}
	return err
}
