package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bound is how a socket is bound so that its packets leave by the interface that somebody has named.
type Bound struct {
	From   netip.Addr // the source address; not valid: as routes say
	Device string     // the interface, where routes alone lead elsewhere; empty: they do not
	// Elsewhere says by which interface it leaves all the same, and why; empty: by the one that was named.
	Elsewhere string
}

// Bind finds out how a connection from an address of an interface to a peer leaves by that interface. answers says that
// the peer's answers to a socket bound to the interface come back by it, too.
func Bind(ifi *net.Interface, from, to netip.Addr, answers bool) Bound {
	if HoldsOnly(ifi) || to.IsLoopback() {
		return Bound{From: from}
	}
	route, err := RouteTo(to, from)
	elsewhere := route.Index
	if err == nil && elsewhere == ifi.Index {
		elsewhere = otherHop(to, from, ifi)
	}
	if err == nil && (route.Own || elsewhere == 0) {
		return Bound{From: from}
	}
	leads := leadsTo(to, ifi)
	if err != nil && !leads {
		return Bound{From: from} // connecting fails with the reason
	}
	why := ""
	switch other := nameOf(elsewhere); {
	case !leads:
		why = fmt.Sprintf("leave by %s, since no route leads there by %s", other, ifi.Name)
	case !answers:
		why = fmt.Sprintf("leave by %s, since that rank names no interface (MCAST_IFACE)", other)
	case to.Is4() && Strict(ifi.Name):
		why = fmt.Sprintf("leave by %s, since this host drops answers by %s (sysctl -w net.ipv4.conf.all.rp_filter=2 "+
			"net.ipv4.conf.%s.rp_filter=2)",
			other, ifi.Name, ifi.Name)
	default:
		if err := mayBind(ifi.Name); err != nil {
			why = fmt.Sprintf("leave by %s, since the kernel binds no socket to %s: %v", other, ifi.Name, err)
		}
	}
	if why != "" {
		return Bound{Elsewhere: why}
	}
	return Bound{From: from, Device: ifi.Name}
}

// Crossed reports whether routes lead by another interface to the networks of an interface's own addresses: it shares
// them with another one.
func Crossed(ifi *net.Interface) bool {
	addrs, _ := ifi.Addrs() // it went away just now: it has none
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.IsSingleIP() || p.Addr().IsLinkLocalUnicast() || HoldsOnly(ifi) {
			continue
		}
		neighbour := p.Addr().Next()
		// not the broadcast address
		if !p.Contains(neighbour) || !p.Contains(neighbour.Next()) && p.Contains(p.Addr().Prev()) {
			neighbour = p.Addr().Prev()
		}
		r, err := RouteTo(neighbour, p.Addr())
		if err == nil && !r.Own && r.Index != ifi.Index && (!p.Addr().Is4() || !Strict(ifi.Name)) &&
			mayBind(ifi.Name) == nil {
			return true
		}
	}
	return false
}

// Strict reports whether the kernel drops packets that come by an interface if its route to their sender leads by
// another one.
func Strict(name string) bool {
	strict := "0"
	for _, of := range []string{"all", name} {
		text, _ := os.ReadFile("/proc/sys/net/ipv4/conf/" + of + "/rp_filter") // none: it does not
		strict = max(strict, strings.TrimSpace(string(text)))
	}
	return strict == "1"
}

// mayBind tries whether this process may bind a socket to an interface.
func mayBind(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return os.NewSyscallError("setsockopt SO_BINDTODEVICE", unix.BindToDevice(fd, name))
}

func nameOf(index int) string {
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return ifi.Name
}

// To has a dialer's sockets bound.
func (b Bound) To(d *net.Dialer) {
	if b.From.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: ipOf(b.From), Zone: b.From.Zone()}
	}
	before := d.Control
	d.Control = func(network, address string, c syscall.RawConn) (err error) {
		if before != nil {
			err = before(network, address, c)
		}
		if err != nil {
			return err
		}
		e := c.Control(func(fd uintptr) {
			if b.From.IsValid() { // else each connection takes a port of its own from all others
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
			}
			if b.Device != "" {
				err = os.NewSyscallError("setsockopt SO_BINDTODEVICE", unix.BindToDevice(int(fd), b.Device))
			}
		})
		if e != nil {
			return e
		}
		return err
	}
}

// Shares has a listener share its port with other listeners of this user that share it, and, if an interface is named,
// take only connections that come by it.
func Shares(device string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) {
			err = os.NewSyscallError("setsockopt SO_REUSEPORT",
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
			if err == nil && device != "" {
				err = os.NewSyscallError("setsockopt SO_BINDTODEVICE", unix.BindToDevice(int(fd), device))
			}
		})
		if e != nil {
			return e
		}
		return err
	}
}
