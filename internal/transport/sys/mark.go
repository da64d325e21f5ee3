package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Mark has the packets of a socket carry a class of service: the upper six bits of IPv4's TOS, or of
// IPv6's traffic class. 0 is the default, and left alone. A socket of IPv6 may be connected to an
// address of IPv4.
func Mark(fd, dscp int) error {
	if dscp == 0 {
		return nil
	}
	four := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, dscp<<2)
	six := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, dscp<<2)
	if four != nil && six != nil {
		return fmt.Errorf("mark packets with DSCP %d (IP_TOS, IPV6_TCLASS): %w", dscp, four)
	}
	return nil
}
