package survey

import (
	"net"
	"net/netip"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// shows reports whether a connection proves that its other end has the address: it comes from that address, or
// from this very host.
func shows(conn net.Conn, at netip.Addr) bool {
	from := plain(conn.RemoteAddr())
	return from == at.Unmap().WithZone("") || from.IsLoopback() || from == plain(conn.LocalAddr())
}

// plain is the address of an end of a TCP connection, as all hosts write it; not valid: it is of
// another kind.
func plain(end net.Addr) netip.Addr {
	at, ok := end.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return at.AddrPort().Addr().Unmap().WithZone("")
}

// meetFrom returns where to meet, as a host finds it by an interface: a zone that it does not know is
// another host's name of one.
func meetFrom(meet, ifi string) string {
	at, err := netip.ParseAddrPort(meet)
	if err != nil || ifi == "" { // a name, or there is no interface
		return meet
	}
	if _, err := net.InterfaceByName(at.Addr().Zone()); err == nil {
		return meet
	}
	return netdev.Near(at, ifi).String()
}
