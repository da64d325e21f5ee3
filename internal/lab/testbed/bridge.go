package testbed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// What netlink says to bridges and package netlink has no words for. The
// attributes are those of include/uapi/linux/if_link.h and if_bridge.h, Linux 6.1.

// responseTime is how long hosts have to answer an IGMP query. A querier that
// has just begun trusts no table until it is over, and floods, so it is as short
// as the field in the query can say.
const responseTime = 100 * time.Millisecond

// raw is a connection for requests that package netlink does not make.
type raw struct{ socket *nl.SocketHandle }

func newRaw(ns netns.NsHandle) (raw, error) {
	s, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	return raw{&nl.SocketHandle{Socket: s}}, err
}

func (r raw) close() { r.socket.Close() }

func (r raw) request(kind, flags int, data ...nl.NetlinkRequestData) error {
	req := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: r.socket}
	for _, d := range data {
		req.AddData(d)
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// setQuerier makes a bridge ask its ports for members: at once and in the
// following seconds when a port comes up, later every two minutes.
func (r raw) setQuerier(bridge int) error {
	clock := func(d time.Duration) []byte { return nl.Uint64Attr(uint64(d / (10 * time.Millisecond))) } // USER_HZ is 100
	if err := r.setBridge(bridge, map[int][]byte{
		nl.IFLA_BR_MCAST_QUERY_RESPONSE_INTVL: clock(responseTime),
		nl.IFLA_BR_MCAST_STARTUP_QUERY_INTVL:  clock(time.Second),
		nl.IFLA_BR_MCAST_STARTUP_QUERY_CNT:    nl.Uint32Attr(4),
	}); err != nil {
		return err
	}
	return r.setBridge(bridge, map[int][]byte{nl.IFLA_BR_MCAST_QUERIER: {1}}) // takes the response time that is set before
}

func (r raw) setBridge(bridge int, attributes map[int][]byte) error {
	link := nl.NewIfInfomsg(unix.AF_UNSPEC)
	link.Index = int32(bridge)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	for key, value := range attributes {
		data.AddRtAttr(key, value)
	}
	return r.request(unix.RTM_NEWLINK, 0, link, info)
}

// setPort makes a port learn nothing, since all tables are static, and flood or not.
func (r raw) setPort(port int, p portRules) error {
	link := nl.NewIfInfomsg(unix.AF_BRIDGE)
	link.Index = int32(port)
	rules := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
	flag := func(key int, on bool) {
		value := byte(0)
		if on {
			value = 1
		}
		rules.AddRtAttr(key, []byte{value})
	}
	flag(nl.IFLA_BRPORT_LEARNING, false)
	flag(nl.IFLA_BRPORT_UNICAST_FLOOD, p.flood)
	flag(nl.IFLA_BRPORT_BCAST_FLOOD, p.flood)
	flag(nl.IFLA_BRPORT_MCAST_FLOOD, p.flood && !p.host)
	flag(nl.IFLA_BRPORT_FAST_LEAVE, p.host) // there is one host, so nobody else to ask
	flag(nl.IFLA_BRPORT_MULTICAST_ROUTER, false)
	return r.request(unix.RTM_SETLINK, 0, link, rules)
}

// portRules says what a port passes on beside what tables say.
type portRules struct{ flood, host bool }

// portMessage is struct br_port_msg: family u8, padding, ifindex u32.
type portMessage [8]byte

// Len returns its length.
func (m *portMessage) Len() int { return len(m) }

// Serialize returns its bytes.
func (m *portMessage) Serialize() []byte { return m[:] }

// ask makes the querier of a bridge begin anew.
func (r raw) ask(bridge int) error {
	return errors.Join(r.setBridge(bridge, map[int][]byte{nl.IFLA_BR_MCAST_QUERIER: {0}}), r.setQuerier(bridge))
}

// addGroup makes a port of a bridge a member of a group for good.
func (r raw) addGroup(bridge, port int, group netip.Addr) error {
	const permanent = 1 // MDB_PERMANENT
	err := r.group(unix.RTM_NEWMDB, unix.NLM_F_CREATE, bridge, port, permanent, group)
	if err != nil {
		return fmt.Errorf("group %v: %w", group, err)
	}
	return nil
}

// forgetGroup ends the membership of a port that a host has made, if there is one.
func (r raw) forgetGroup(bridge, port int, group netip.Addr) error {
	err := r.group(unix.RTM_DELMDB, 0, bridge, port, 0, group)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: it is no member
		return fmt.Errorf("forget group %v: %w", group, err)
	}
	return nil
}

// group is a request about a port's membership of a group.
func (r raw) group(kind, flags, bridge, port int, state byte, group netip.Addr) error {
	head := &portMessage{unix.AF_BRIDGE}
	nl.NativeEndian().PutUint32(head[4:], uint32(bridge))
	// struct br_mdb_entry: ifindex u32, state u8, flags u8, vid u16, address [16], protocol be16, padding
	entry := make([]byte, 28)
	nl.NativeEndian().PutUint32(entry, uint32(port))
	entry[4] = state
	copy(entry[8:], group.AsSlice())
	ethertype := ipv4.ethertype
	if group.Is6() {
		ethertype = ipv6.ethertype
	}
	binary.BigEndian.PutUint16(entry[24:], ethertype)
	const setEntry = 1 // MDBA_SET_ENTRY
	return r.request(kind, flags, head, nl.NewRtAttr(setEntry, entry))
}

// addForward makes a bridge send a station's frames through a port. NOARP means static here; a
// permanent entry would be the bridge's own.
func addForward(h *netlink.Handle, port int, to station) error {
	return h.NeighSet(&netlink.Neigh{
		LinkIndex: port, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER, State: netlink.NUD_NOARP, HardwareAddr: to.mac,
	})
}
